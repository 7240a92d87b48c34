package trigger

import (
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
	// shortestCalm and longestCalm bound how long nothing urgent must have been written for a rush to be over.
	minQuietPeriod = 100 * time.Millisecond
	maxQuietPeriod = 3 * time.Second
	// longestRush is when what looks like a rush is taken for the usual state of the cluster: then nothing waits any more.
	maxBurst = 15 * time.Second
)

// Rush is a time in which much is written that users wait for: services and endpoints on their way to other clusters. What
// nobody waits for, such as conditions, is written when it is over; written at once it would take its share of API servers
// that are busy enough.
type Burst struct {
	mu               sync.Mutex
	start, lastWrite time.Time
}

// Note tells that something urgent is being written.
func (r *Burst) Extend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.lastWrite) > r.quietPeriod() {
		r.start = now
	}
	r.lastWrite = now
}

// On tells whether there is a rush.
func (r *Burst) Active() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return now.Sub(r.lastWrite) <= r.quietPeriod() && now.Sub(r.start) < maxBurst
}

// calm is as long as the rush was: those who import what was published here are not done when we are.
func (r *Burst) quietPeriod() time.Duration {
	return min(max(r.lastWrite.Sub(r.start), minQuietPeriod), maxQuietPeriod)
}

// Later brings keys back to their controller after the rush.
type Deferred struct {
	burst *Burst

	mu    sync.Mutex
	keys  map[types.NamespacedName]struct{}
	added chan struct{}
}

// NewLater returns a Later that waits for the end of rush. It serves one controller, by its Source.
func NewDeferred(rush *Burst) *Deferred {
	return &Deferred{burst: rush, keys: map[types.NamespacedName]struct{}{}, added: make(chan struct{}, 1)}
}

// Urgent tells that something users wait for is being written.
func (l *Deferred) MarkUrgent() { l.burst.Extend() }

// Wait tells whether there is a rush; then key comes back to its controller when it is over.
func (l *Deferred) Defer(key types.NamespacedName) bool {
	if !l.burst.Active() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key] = struct{}{}
	select {
	case l.added <- struct{}{}:
	default: // it is awake
	}
	return true
}

// Source feeds the controller with the keys that waited.
func (l *Deferred) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go l.run(ctx, queue)
		return nil
	})
}

func (l *Deferred) run(ctx context.Context, queue Queue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.added:
		}
		for l.burst.Active() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(minQuietPeriod / 4):
			}
		}
		l.mu.Lock()
		keys := slices.Collect(maps.Keys(l.keys))
		clear(l.keys)
		l.mu.Unlock()
		addWithLowPriority(queue, keys)
	}
}

// addLast enqueues keys behind all others.
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
