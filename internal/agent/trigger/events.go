package trigger

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EventHandler calls a function for each event of an informer, with typed objects. Functions that
// are nil are not called.
type EventHandler[T client.Object] struct {
	Add    func(obj T)
	Update func(before, after T)
	// Delete gets the last known state of the object. observed is false if the watch missed the
	// deletion: the object was absent when the informer listed again.
	Delete func(obj T, observed bool)
}

var _ toolscache.ResourceEventHandler = EventHandler[client.Object]{}

// OnAdd implements toolscache.ResourceEventHandler.
func (h EventHandler[T]) OnAdd(obj any, _ bool) {
	if typed, ok := obj.(T); ok && h.Add != nil {
		h.Add(typed)
	}
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (h EventHandler[T]) OnUpdate(before, after any) {
	typedBefore, okBefore := before.(T)
	typedAfter, okAfter := after.(T)
	if okBefore && okAfter && h.Update != nil {
		h.Update(typedBefore, typedAfter)
	}
}

// OnDelete implements toolscache.ResourceEventHandler.
func (h EventHandler[T]) OnDelete(obj any) {
	tombstone, unobserved := obj.(toolscache.DeletedFinalStateUnknown)
	if unobserved {
		obj = tombstone.Obj
	}
	if typed, ok := obj.(T); ok && h.Delete != nil {
		h.Delete(typed, !unobserved)
	}
}

// Handle adds a handler to the informer of kind's type in c, without waiting for the cache to sync.
// synced reports whether the handler has been called for every object of the first list.
func Handle[T client.Object](ctx context.Context, c cache.Cache, kind T, handler EventHandler[T]) (synced func() bool, err error) {
	informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}
