package dns

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listWatch lists and watches one kind of object.
type listWatch struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// reflectorStore receives the objects of one kind from a Reflector, one call at a time.
type reflectorStore struct {
	reduce cache.TransformFunc
	set    func(object any)
	remove func(object any)
	// retain is called after set was called for all listed objects, to remove the others.
	retain func(objects []any)
	synced func()
}

// Transformer implements cache.TransformingStore. Objects are reduced one by one while a list is
// read, so a complete list of full objects is never in memory.
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

// Resync implements cache.ReflectorStore. Nothing has to be repeated.
func (s *reflectorStore) Resync() error { return nil }

// connection is the state of the connection to the API server, as its watches see it.
type connection struct {
	mu         sync.Mutex
	down       map[string]bool // kinds that cannot be read
	loggedDown bool
}

// record records whether reading a kind succeeded, and logs when the connection is lost or
// restored.
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
		log.Warningf("cannot watch %s (%v): answers come from the objects read before", kind, err)
	case up && l.loggedDown:
		log.Info("the connection to the API server is restored")
	}
	l.loggedDown = !up
}

// retries returns the pauses before a failed list or watch is tried again: at most ten seconds.
// Those of client-go grow to a minute, and for so long after an outage answers would be old ones.
func retries() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second}
}

// runReflector keeps a store up to date with the API server until the context ends. It passes the
// result of every list and watch call to record.
func runReflector(ctx context.Context, kind string, lw listWatch, expected runtime.Object, to *reflectorStore,
	record func(kind string, err error)) {
	report := func(ctx context.Context, err error) {
		if ctx.Err() == nil {
			record(kind, err)
		}
	}
	wrapped := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.list(ctx, o)
			report(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.watch(ctx, o)
			report(ctx, err)
			return w, err
		},
	}
	options := cache.ReflectorOptions{Name: "seamark-dns " + kind, Backoff: retries()}
	cache.NewReflectorWithOptions(wrapped, expected, to, options).RunWithContext(ctx)
}
