package trigger

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// portionPriority puts keys of Portions before all others: few of them are in the queue.
const portionPriority = 10

// Portions feeds a controller with many keys, of which only a few are in its queue at a time. It
// uses all workers while no other keys wait, and half of them otherwise, so that neither its keys
// nor the others wait for all that came before. It serves one controller, by its Source.
type Portions struct {
	// Workers is how many keys the controller reconciles at a time.
	Workers int

	mu       sync.Mutex
	queue    Queue // nil before the controller runs
	waiting  []types.NamespacedName
	isQueued map[types.NamespacedName]bool // of those that wait here
	started  map[types.NamespacedName]bool // of those that were added to the queue: whether a worker has them
}

// Source feeds the controller.
func (p *Portions) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queue = queue
		return nil
	})
}

// Push adds keys. Those pushed before the controller runs are dropped: a controller that starts
// reconciles everything anyway.
func (p *Portions) Push(keys ...types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue == nil {
		return
	}
	if p.isQueued == nil {
		p.isQueued, p.started = map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	}
	for _, key := range keys {
		if !p.isQueued[key] {
			p.isQueued[key] = true
			p.waiting = append(p.waiting, key)
		}
	}
	p.add()
}

// add adds keys to the queue as long as there is room. The lock is held.
func (p *Portions) add() {
	for len(p.waiting) > 0 && len(p.started) < p.room() {
		key := p.waiting[0]
		p.waiting = p.waiting[1:]
		delete(p.isQueued, key)
		p.started[key] = false
		request := reconcile.Request{NamespacedName: key}
		if prioritized, ok := p.queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(portionPriority)}, request)
		} else {
			p.queue.Add(request)
		}
	}
	if len(p.waiting) == 0 {
		p.waiting, p.isQueued = nil, map[types.NamespacedName]bool{} // both keep the memory of all that they had
	}
}

// room returns how many keys may be in the queue and with workers now. The lock is held.
func (p *Portions) room() int {
	own := 0
	for _, started := range p.started {
		if !started {
			own++
		}
	}
	if p.queue.Len() > own {
		return max(p.Workers/2, 1) // others wait too
	}
	return p.Workers
}

// Reconciler returns a reconciler that lets the next keys into the queue when one is done.
func (p *Portions) Reconciler(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		p.begin(request.NamespacedName)
		defer p.done(request.NamespacedName)
		return r.Reconcile(ctx, request)
	})
}

func (p *Portions) begin(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, pushed := p.started[key]; pushed {
		p.started[key] = true
	}
}

func (p *Portions) done(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, pushed := p.started[key]; pushed {
		delete(p.started, key)
		p.add()
	}
}
