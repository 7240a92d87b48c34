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
type sink struct {
	reduce cache.TransformFunc
	set    func(object any)
	drop   func(object any)
	// replaced is called after set was called for everything listed, to drop the rest.
	replaced func(objects []any)
	synced   func()
}

// Transformer implements cache.TransformingStore: objects are reduced as they come in, before all are there.
func (s *sink) Transformer() cache.TransformFunc { return s.reduce }

// Add implements cache.ReflectorStore.
func (s *sink) Add(object any) error { return s.each(s.set, object) }

// Update implements cache.ReflectorStore.
func (s *sink) Update(object any) error { return s.each(s.set, object) }

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(object any) error { return s.each(s.drop, object) }

func (s *sink) each(do func(any), object any) error {
	reduced, err := s.reduce(object)
	if err == nil {
		do(reduced)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s *sink) Replace(objects []any, _ string) error {
	for i := range objects {
		reduced, err := s.reduce(objects[i])
		if err != nil {
			return err
		}
		objects[i] = reduced
		s.set(reduced)
	}
	s.replaced(objects)
	s.synced()
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do again.
func (s *sink) Resync() error { return nil }

// line is the connection to the API server as its watches see it.
type line struct {
	mu   sync.Mutex
	down map[string]bool // kinds that cannot be read
	told bool            // that it is down
}

// heard notes whether reading a kind worked.
func (l *line) heard(kind string, err error) {
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
	case !up && !l.told:
		log.Warningf("the API server does not tell about %s (%v): what is known already stays, nothing new comes", kind, err)
	case up && l.told:
		log.Info("the API server tells about changes again")
	}
	l.told = !up
}

// follow keeps a sink at what the API server has, until the context ends. heard is told of every attempt.
func follow(ctx context.Context, kind string, lw listWatch, expected runtime.Object, to *sink, heard func(kind string, err error)) {
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
