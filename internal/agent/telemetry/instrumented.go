package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Timed is a reconciler that tells how long changes waited and took. Its queue notes when a service first came in; what the
// reconciler wrote for it ends the time. A change that led to no write is not counted: nobody waited for it.
type InstrumentedReconciler struct {
	reconcile.Reconciler
	// Name of the reconciler, and the hop its writes are part of.
	Name, Hop string
	Metrics   *Metrics

	mu      sync.Mutex
	arrived map[types.NamespacedName]time.Time
	wrote   map[types.NamespacedName]bool
	loggedErrors    map[types.NamespacedName]string // the error that was logged last
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Wrote says that something was written for a service.
func (t *InstrumentedReconciler) RecordWrite(service types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wrote == nil {
		t.wrote = map[types.NamespacedName]bool{}
	}
	t.wrote[service] = true
}

func (t *InstrumentedReconciler) recordArrival(service types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arrived == nil {
		t.arrived = map[types.NamespacedName]time.Time{}
	}
	if _, waiting := t.arrived[service]; !waiting {
		t.arrived[service] = time.Now()
	}
}

// Reconcile implements reconcile.Reconciler. An error is logged when it is new for its service, not again with every retry, and always counted.
func (t *InstrumentedReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	t.mu.Lock()
	since, timed := t.arrived[request.NamespacedName]
	delete(t.arrived, request.NamespacedName)
	t.mu.Unlock()
	var waits objects.WaitReason
	result, err := t.Reconciler.Reconcile(context.WithValue(ctx, waitKey{}, &waits), request)
	if waits != "" {
		t.Metrics.Waits.WithLabelValues(t.Name, string(waits)).Inc()
	}
	t.Metrics.Waiting.set(request.NamespacedName, t.Name, waits)
	if t.isNewError(request.NamespacedName, err) {
		ctrl.LoggerFrom(ctx).Error(err, "cannot bring this up to date; trying again until it works")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wrote := t.wrote[request.NamespacedName]
	delete(t.wrote, request.NamespacedName)
	switch {
	case err != nil:
		t.Metrics.Errors.WithLabelValues(t.Name).Inc()
		if timed {
			t.arrived[request.NamespacedName] = since // the wait goes on
		}
		return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // an error would be logged by the controller, every time
	case wrote && timed:
		t.Metrics.Propagation.WithLabelValues(t.Hop).Observe(time.Since(since).Seconds())
	}
	return result, nil
}

// isNews tells an error that differs from the last one of its service. One that ended is forgotten.
func (t *InstrumentedReconciler) isNewError(service types.NamespacedName, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.loggedErrors, service)
		return false
	}
	if t.loggedErrors == nil {
		t.loggedErrors = map[types.NamespacedName]string{}
	}
	before, said := t.loggedErrors[service]
	t.loggedErrors[service] = err.Error()
	return !said || before != err.Error()
}

// NewQueue makes the controller's queue.
func (t *InstrumentedReconciler) NewQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := &recordingQueue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		recordArrival:           t.recordArrival,
	}
	t.Metrics.Errors.WithLabelValues(t.Name) // shown from the start, at zero
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = queue
	return queue
}

// Depth is how many services wait.
func (t *InstrumentedReconciler) Depth() float64 {
	t.mu.Lock()
	queue := t.queue
	t.mu.Unlock()
	if queue == nil {
		return 0
	}
	return float64(queue.Len())
}

// noting is a queue that notes when something comes in at once. What comes in later, or again after a failure, was seen before.
type recordingQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	recordArrival func(types.NamespacedName)
}

func (q *recordingQueue) Add(request reconcile.Request) {
	q.recordArrival(request.NamespacedName)
	q.PriorityQueue.Add(request)
}
