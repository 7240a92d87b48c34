package trigger

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// minQuietPeriod and maxQuietPeriod bound the time without urgent writes after which a burst is
	// over.
	minQuietPeriod = 100 * time.Millisecond
	maxQuietPeriod = 3 * time.Second
	// maxBurst is the time after which urgent writes count as the usual load of the cluster: then
	// nothing is deferred any more. A thousand services with derived Services take about 25 s on two
	// cores; writes that no client waits for would slow down their second half.
	maxBurst = 30 * time.Second
)

// Burst is a period with many urgent writes: services and endpoints that clients in other clusters
// wait for. Less urgent writes, such as conditions, are deferred until it is over, so that they do
// not slow down API servers that are already busy.
type Burst struct {
	mu               sync.Mutex
	start, lastWrite time.Time
}

// Extend records an urgent write. It starts a burst or prolongs the current one.
func (b *Burst) Extend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.lastWrite) > b.quietPeriod() {
		b.start = now
	}
	b.lastWrite = now
}

// Active reports whether there is a burst now.
func (b *Burst) Active() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	return now.Sub(b.lastWrite) <= b.quietPeriod() && now.Sub(b.start) < maxBurst
}

// quietPeriod is as long as the burst was: the clusters that import what was published here need
// about as long again.
func (b *Burst) quietPeriod() time.Duration {
	return min(max(b.lastWrite.Sub(b.start), minQuietPeriod), maxQuietPeriod)
}

// Deferred enqueues keys again after the burst.
type Deferred struct {
	burst *Burst

	mu    sync.Mutex
	keys  map[types.NamespacedName]struct{}
	added chan struct{}
}

// NewDeferred returns a Deferred that waits for the end of burst. It serves one controller, by its
// Source.
func NewDeferred(burst *Burst) *Deferred {
	return &Deferred{burst: burst, keys: map[types.NamespacedName]struct{}{}, added: make(chan struct{}, 1)}
}

// MarkUrgent records a write that clients wait for.
func (d *Deferred) MarkUrgent() { d.burst.Extend() }

// Defer reports whether there is a burst. If so, key is enqueued again when it is over.
func (d *Deferred) Defer(key types.NamespacedName) bool {
	if !d.burst.Active() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys[key] = struct{}{}
	select {
	case d.added <- struct{}{}:
	default: // already signaled
	}
	return true
}

// Source feeds the controller with the keys that were deferred.
func (d *Deferred) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go d.run(ctx, queue)
		return nil
	})
}

func (d *Deferred) run(ctx context.Context, queue Queue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.added:
		}
		for d.burst.Active() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(minQuietPeriod / 4):
			}
		}
		d.mu.Lock()
		keys := slices.SortedFunc(maps.Keys(d.keys), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
		d.keys = map[types.NamespacedName]struct{}{} // clear would keep the memory of the largest burst
		d.mu.Unlock()
		addWithLowPriority(queue, keys)
	}
}

// addWithLowPriority enqueues keys behind all others.
func addWithLowPriority(queue Queue, keys []types.NamespacedName) {
	prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request])
	for _, key := range keys {
		request := reconcile.Request{NamespacedName: key}
		if ok {
			prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(ctrlhandler.LowPriority)}, request)
		} else {
			queue.Add(request)
		}
	}
}
