package telemetry

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/seamark-dev/seamark/internal/objects"
)

// InstrumentedReconciler measures how long changes take from their arrival in the queue until the
// reconciler has written what follows from them. A change that led to no write is not measured: no
// client waited for it.
type InstrumentedReconciler struct {
	reconcile.Reconciler
	// Name is the name of the reconciler, Hop the hop that its writes are part of.
	Name, Hop string
	Metrics   *Metrics

	mu           sync.Mutex
	arrived      map[types.NamespacedName]time.Time
	wrote        map[types.NamespacedName]bool
	loggedErrors map[types.NamespacedName]string // the error that was logged last for a service
	queue        workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// RecordWrite records that something was written for a service.
func (r *InstrumentedReconciler) RecordWrite(service types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrote == nil {
		r.wrote = map[types.NamespacedName]bool{}
	}
	r.wrote[service] = true
}

func (r *InstrumentedReconciler) recordArrival(service types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waiting := r.arrived[service]; !waiting {
		r.arriveAt(service, time.Now())
	}
}

// arriveAt records when a service arrived. The lock is held.
func (r *InstrumentedReconciler) arriveAt(service types.NamespacedName, at time.Time) {
	if r.arrived == nil {
		r.arrived = map[types.NamespacedName]time.Time{}
	}
	r.arrived[service] = at
}

// Reconcile implements reconcile.Reconciler. An error is always counted, but logged only if it is
// new for its service, not with every retry.
func (r *InstrumentedReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	since, timed := r.arrived[request.NamespacedName]
	if delete(r.arrived, request.NamespacedName); len(r.arrived) == 0 {
		r.arrived = nil // a map keeps the memory of all that it ever had
	}
	r.mu.Unlock()
	var waits objects.WaitReason
	result, err := r.Reconciler.Reconcile(context.WithValue(ctx, waitKey{}, &waits), request)
	if waits != "" {
		r.Metrics.Waits.WithLabelValues(r.Name, string(waits)).Inc()
	}
	r.Metrics.Waiting.set(request.NamespacedName, r.Name, waits)
	if r.isNewError(request.NamespacedName, err) {
		ctrl.LoggerFrom(ctx).Error(err, "reconcile failed; retrying")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wrote := r.wrote[request.NamespacedName]
	delete(r.wrote, request.NamespacedName)
	switch {
	case err != nil:
		r.Metrics.Errors.WithLabelValues(r.Name).Inc()
		if timed {
			r.arriveAt(request.NamespacedName, since) // the change is still waiting
		}
		return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // the controller would log an error every time
	case wrote && timed:
		r.Metrics.Propagation.WithLabelValues(r.Hop).Observe(time.Since(since).Seconds())
	}
	return result, nil
}

// isNewError reports whether an error differs from the last one of its service. A success forgets
// it.
func (r *InstrumentedReconciler) isNewError(service types.NamespacedName, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.loggedErrors, service)
		return false
	}
	if r.loggedErrors == nil {
		r.loggedErrors = map[types.NamespacedName]string{}
	}
	before, logged := r.loggedErrors[service]
	r.loggedErrors[service] = err.Error()
	return !logged || before != err.Error()
}

// NewQueue returns the controller's queue.
func (r *InstrumentedReconciler) NewQueue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := &recordingQueue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		recordArrival: r.recordArrival,
	}
	r.Metrics.Errors.WithLabelValues(r.Name) // exposed from the start, at zero
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	return queue
}

// Depth returns how many services are in the queue.
func (r *InstrumentedReconciler) Depth() float64 {
	r.mu.Lock()
	queue := r.queue
	r.mu.Unlock()
	if queue == nil {
		return 0
	}
	return float64(queue.Len())
}

// recordingQueue records when a service is added for immediate processing. A service that is added
// with a delay or after a failure was recorded before.
type recordingQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	recordArrival func(types.NamespacedName)
}

func (q *recordingQueue) Add(request reconcile.Request) {
	q.recordArrival(request.NamespacedName)
	q.PriorityQueue.Add(request)
}
