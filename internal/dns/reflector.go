package dns

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listWatch is how one kind of object is read.
type listWatch struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// sink takes the objects of one kind. A Reflector writes to it, one call at a time.
type reflectorStore struct {
	reduce cache.TransformFunc
	set    func(object any)
	remove func(object any)
	// replaced is called after set was called for everything listed, to drop the rest.
	retain func(objects []any)
	synced func()
}

// Transformer implements cache.TransformingStore: objects are reduced as they come in, before all are there.
func (s *reflectorStore) Transformer() cache.TransformFunc { return s.reduce }

// Add implements cache.ReflectorStore.
func (s *reflectorStore) Add(object any) error { return s.apply(s.set, object) }

// Update implements cache.ReflectorStore.
func (s *reflectorStore) Update(object any) error { return s.apply(s.set, object) }

// Delete implements cache.ReflectorStore.
func (s *reflectorStore) Delete(object any) error { return s.apply(s.remove, object) }

func (s *reflectorStore) apply(do func(any), object any) error {
	reduced, err := s.reduce(object)
	if err == nil {
		do(reduced)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s *reflectorStore) Replace(objects []any, _ string) error {
	for i := range objects {
		reduced, err := s.reduce(objects[i])
		if err != nil {
			return err
		}
		objects[i] = reduced
		s.set(reduced)
	}
	s.retain(objects)
	s.synced()
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do again.
func (s *reflectorStore) Resync() error { return nil }

// line is the connection to the API server as its watches see it.
type connection struct {
	mu         sync.Mutex
	down       map[string]bool // kinds that cannot be read
	loggedDown bool            // that it is down
}

// heard notes whether reading a kind worked.
func (l *connection) record(kind string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.down[kind] = true
	} else {
		delete(l.down, kind)
	}
	up := len(l.down) == 0
	setGauge(connected, up)
	switch {
	case !up && !l.loggedDown:
		log.Warningf("the API server does not tell about %s (%v): what is known already stays, nothing new comes", kind, err)
	case up && l.loggedDown:
		log.Info("the API server tells about changes again")
	}
	l.loggedDown = !up
}

// follow keeps a sink at what the API server has, until the context ends. heard is told of every attempt.
func runReflector(ctx context.Context, kind string, lw listWatch, expected runtime.Object, to *reflectorStore, heard func(kind string, err error)) {
	tell := func(ctx context.Context, err error) {
		if ctx.Err() == nil {
			heard(kind, err)
		}
	}
	wrapped := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.list(ctx, o)
			tell(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.watch(ctx, o)
			tell(ctx, err)
			return w, err
		},
	}
	cache.NewReflectorWithOptions(wrapped, expected, to, cache.ReflectorOptions{Name: "seamark-dns " + kind}).RunWithContext(ctx)
}
