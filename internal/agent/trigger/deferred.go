package trigger

import (
	"cmp"
	"context"
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
	// minQuietPeriod is how long after an urgent write others are deferred at least: until a single
	// service has arrived in other clusters.
	minQuietPeriod = 100 * time.Millisecond
	// maxCalmWait bounds for how long a write waits for such a calm under the usual load, which may
	// leave none.
	maxCalmWait = 2 * time.Second
	// maxQuietPeriod bounds for how long after a burst writes are deferred.
	maxQuietPeriod = 30 * time.Second
	// usualRate is how many urgent writes a second are a load that all clusters keep up with, for as
	// long as it lasts. From burstSize writes beyond that on there is a burst. It counts at most
	// maxExcess of them, so a burst is over when there was no write for a second.
	usualRate = 30
	burstSize = 8
	maxExcess = 32
	// maxDeferral bounds for how long a write is deferred. Five thousand services take about this long
	// on two cores; writes that no client waits for would slow down the last of them.
	maxDeferral = 2 * time.Minute
)

// Burst is a period with many urgent writes: services and endpoints that clients in other clusters
// wait for. Less urgent writes, such as conditions, are deferred until the importing clusters have
// followed, so that they do not slow down API servers that are already busy. How long importers
// need is not known here. They do about as much work as this cluster did, so a burst is over when
// it was quiet for as long as the burst lasted.
type Burst struct {
	mu        sync.Mutex
	lastWrite time.Time
	excess    float64   // writes beyond the usual rate
	end       time.Time // when importers have probably followed
}

// Extend records an urgent write.
func (b *Burst) Extend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	gap := now.Sub(b.lastWrite)
	b.excess = max(0, b.excess-usualRate*gap.Seconds())
	if b.excess > burstSize {
		// The burst lasts for gap longer, and so does the quiet period after it.
		b.end = earlier(later(b.end, b.lastWrite).Add(2*gap), now.Add(maxQuietPeriod))
	}
	b.excess = min(b.excess+1, maxExcess)
	b.lastWrite = now
}

// Active reports whether importing clusters probably still have work from urgent writes.
func (b *Burst) Active() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(later(b.end, b.lastWrite.Add(minQuietPeriod)))
}

// over reports whether a write that was deferred at the given time is to be made now. Urgent writes
// that follow each other slowly do not defer it again and again.
func (b *Burst) over(deferred time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	calm := earlier(b.lastWrite.Add(minQuietPeriod), deferred.Add(maxCalmWait))
	return !time.Now().Before(earlier(later(b.end, calm), deferred.Add(maxDeferral)))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Deferred enqueues keys again after the burst.
type Deferred struct {
	burst *Burst

	mu    sync.Mutex
	keys  map[types.NamespacedName]*deferral
	added chan struct{}
}

// deferral is since when writes for a key are deferred, and whether the key was enqueued again.
type deferral struct {
	since    time.Time
	enqueued bool
}

// NewDeferred returns a Deferred that waits for the end of burst. It serves one controller, by its
// Source.
func NewDeferred(burst *Burst) *Deferred {
	return &Deferred{burst: burst, keys: map[types.NamespacedName]*deferral{}, added: make(chan struct{}, 1)}
}

// MarkUrgent records a write that clients wait for.
func (d *Deferred) MarkUrgent() { d.burst.Extend() }

// Defer reports whether a write is to be made later. If so, key is enqueued again then.
func (d *Deferred) Defer(key types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.keys[key]; known != nil {
		if !known.enqueued && !d.burst.over(known.since) {
			return true
		}
		d.forget(key)
		return false
	}
	if !d.burst.Active() {
		return false
	}
	d.keys[key] = &deferral{since: time.Now()}
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
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(minQuietPeriod / 4):
			}
			var due []types.NamespacedName
			due, waiting = d.due()
			addWithLowPriority(queue, due)
		}
	}
}

// due returns the keys whose writes are to be made now, in their order, and reports whether others
// wait. It forgets keys for which nothing had to be written after they were enqueued.
func (d *Deferred) due() (due []types.NamespacedName, waiting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, deferral := range d.keys {
		switch {
		case deferral.enqueued:
			if time.Since(deferral.since) > 2*maxDeferral {
				d.forget(key)
			}
		case d.burst.over(deferral.since):
			deferral.enqueued = true
			due = append(due, key)
		default:
			waiting = true
		}
	}
	slices.SortFunc(due, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return due, waiting
}

// forget removes a key. The lock is held.
func (d *Deferred) forget(key types.NamespacedName) {
	delete(d.keys, key)
	if len(d.keys) == 0 {
		d.keys = map[types.NamespacedName]*deferral{} // the earlier one keeps the memory of the largest burst
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
