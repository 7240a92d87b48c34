// Package trigger feeds reconcilers from watches of several API servers. Unlike controller-runtime's own source it does not
// hold a controller back until a cache has synced: an agent whose broker is away must still do its work at home.
package trigger

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is what a controller reads its keys from.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// KeysOf names the services an object matters to.
type KeysOf[T client.Object] func(T) []types.NamespacedName

// Watch enqueues the services of every object of T's kind that appears, changes or goes in c.
func Watch[T client.Object](c cache.Cache, obj T, keys KeysOf[T]) source.Source {
	return WatchLost(c, obj, keys, nil)
}

// WatchLost is Watch that also tells of objects that vanished unseen: they were missing when the watch came back after a
// gap, so nobody knows whether they were deleted or the server lost them. It tells of those, too, that are older than they
// were.
func WatchLost[T client.Object](c cache.Cache, obj T, keys KeysOf[T], lost func(T)) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		informer, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		_, err = informer.AddEventHandler(handler(queue, keys, lost))
		return err
	})
}

func handler[T client.Object](queue Queue, keys KeysOf[T], lost func(T)) toolscache.ResourceEventHandler {
	enqueue := func(obj any) {
		if typed, ok := obj.(T); ok {
			for _, key := range keys(typed) {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(before, after any) {
			b, okBefore := before.(T)
			a, okAfter := after.(T)
			if okBefore && okAfter && b.GetResourceVersion() == a.GetResourceVersion() {
				return // a resync: nothing changed
			}
			if okBefore && okAfter && lost != nil && older(a, b) {
				lost(a)
			}
			enqueue(before) // it may have belonged to another service
			enqueue(after)
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
				if typed, ok := obj.(T); ok && lost != nil {
					lost(typed)
				}
			}
			enqueue(obj)
		},
	}
}

// older tells whether a was written before b: resource versions grow with every write (KEP-5504).
func older(a, b client.Object) bool {
	va, errA := strconv.ParseInt(a.GetResourceVersion(), 10, 64)
	vb, errB := strconv.ParseInt(b.GetResourceVersion(), 10, 64)
	return errA == nil && errB == nil && va < vb
}

// Push is a source for keys that come from elsewhere than a watch. The zero value is ready; what is pushed before the
// controller runs is dropped, because a controller that starts looks at everything anyway.
type Push struct {
	queue atomic.Pointer[Queue]
}

// Source feeds a controller from p. A Push serves one controller.
func (p *Push) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		p.queue.Store(&queue)
		return nil
	})
}

// Push enqueues keys.
func (p *Push) Push(keys ...types.NamespacedName) {
	if queue := p.queue.Load(); queue != nil {
		for _, key := range keys {
			(*queue).Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// Name is the key function of an object that has its service's name and namespace.
func Name[T client.Object](obj T) []types.NamespacedName {
	return []types.NamespacedName{client.ObjectKeyFromObject(obj)}
}
