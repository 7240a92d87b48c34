// Package trigger feeds reconcilers from watches of several API servers. Unlike
// controller-runtime's own source it does not block a controller until a cache has synced: an agent
// whose broker is unreachable must still reconcile its own cluster.
package trigger

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Queue is the work queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// KeysOf returns the services that an object matters to.
type KeysOf[T client.Object] func(T) []types.NamespacedName

// Hooks are called with an object before its services are enqueued. Functions that are nil are not
// called.
type Hooks[T client.Object] struct {
	// Lost is called for objects that the server may have lost. Those are objects whose deletion
	// the watch missed, which may be a deletion or a loss, and objects that are older than they
	// were, because the server was restored from a backup.
	Lost func(T)
	// Changed is called for objects that were added, and for those whose deletion the watch showed.
	Changed func(obj T, deleted bool)
	// Matters reports whether an update can change what the reconciler writes. Others do not enqueue
	// anything, unless the object is older than it was.
	Matters func(before, after T) bool
	// Own reports whether an event only shows what the reconciler wrote for a service. It has
	// decided already what follows from that, so the service is not enqueued.
	Own func(key types.NamespacedName, obj T, deleted bool) bool
}

// Watch enqueues the services of every object of T's kind that is added, updated or deleted in c.
func Watch[T client.Object](c cache.Cache, obj T, keys KeysOf[T]) source.Source {
	return WatchWith(c, obj, keys, Hooks[T]{})
}

// WatchWith is Watch that also calls hooks.
func WatchWith[T client.Object](c cache.Cache, obj T, keys KeysOf[T], hooks Hooks[T]) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		_, err := Handle(ctx, c, obj, enqueueing(queue, keys, hooks))
		return err
	})
}

func enqueueing[T client.Object](queue Queue, keys KeysOf[T], hooks Hooks[T]) EventHandler[T] {
	enqueue := func(obj T, deleted bool) (services []types.NamespacedName) {
		services = keys(obj)
		for _, key := range services {
			if hooks.Own == nil || !hooks.Own(key, obj, deleted) {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		}
		return services
	}
	return EventHandler[T]{
		Add: func(obj T) {
			if hooks.Changed != nil {
				hooks.Changed(obj, false)
			}
			enqueue(obj, false)
		},
		Update: func(before, after T) {
			if before.GetResourceVersion() == after.GetResourceVersion() {
				return // a resync: nothing changed
			}
			older := objects.OlderVersion(after, before)
			if hooks.Lost != nil && older {
				hooks.Lost(after)
			}
			if hooks.Matters != nil && !older && !hooks.Matters(before, after) {
				return
			}
			now := enqueue(after, false)
			for _, key := range keys(before) {
				if !slices.Contains(now, key) { // the object belonged to another service
					queue.Add(reconcile.Request{NamespacedName: key})
				}
			}
		},
		Delete: func(obj T, observed bool) {
			switch {
			case observed && hooks.Changed != nil:
				hooks.Changed(obj, true)
			case !observed && hooks.Lost != nil:
				hooks.Lost(obj)
			}
			enqueue(obj, true)
		},
	}
}

// Push is a source for keys that do not come from a watch. The zero value is ready. Keys pushed
// before the controller runs are dropped: a controller that starts reconciles everything anyway.
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
