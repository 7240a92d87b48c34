package aggregate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/apply"
	"github.com/seamark-dev/seamark/internal/broker"
	"github.com/seamark-dev/seamark/internal/index"
)

// Reconciler keeps the aggregates this member is responsible for.
type Reconciler struct {
	ClusterID       string
	BrokerNamespace string
	Broker          client.Client
	Writer          *apply.Writer
	// Connected tells whether the broker's caches are filled.
	Connected func() bool
	Stale     func() map[string]bool

	mu    sync.Mutex
	since map[types.NamespacedName]time.Time // when a difference that is others' to mend was first seen
}

// Reconcile brings the aggregate of one service up to date, if that is this member's to do.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.Connected() {
		return ctrl.Result{}, nil // all are looked at when it is
	}
	if !r.Writer.Settled(ctx, key) {
		return ctrl.Result{RequeueAfter: apply.EchoPatience}, nil
	}
	in := Input{ClusterID: r.ClusterID, BrokerNamespace: r.BrokerNamespace, Service: key, Stale: r.Stale()}
	var err error
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil {
		return ctrl.Result{}, err
	}
	existing := &mcsv1beta1.ServiceImport{}
	err = r.Broker.Get(ctx, types.NamespacedName{Namespace: r.BrokerNamespace, Name: broker.AggregateName(key)}, existing)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read the aggregate of %s: %w", key, err)
	}
	if err == nil {
		in.Existing = existing
	}
	plan := Decide(in)
	if wait := r.wait(key, plan); plan.Nothing || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := r.write(ctx, key, in.Existing, plan.Want); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return ctrl.Result{RequeueAfter: stepIn}, nil // another member was first; the watch shows what it wrote
		}
		return ctrl.Result{}, fmt.Errorf("write the aggregate of %s: %w", key, err)
	}
	return ctrl.Result{}, nil
}

// wait is how long this member still leaves the difference to others.
func (r *Reconciler) wait(key types.NamespacedName, plan Plan) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if plan.Nothing || plan.Wait == 0 {
		delete(r.since, key)
		return 0
	}
	since, seen := r.since[key]
	if !seen {
		if r.since == nil {
			r.since = map[types.NamespacedName]time.Time{}
		}
		since = time.Now()
		r.since[key] = since
	}
	return max(0, plan.Wait-time.Since(since))
}

func (r *Reconciler) write(ctx context.Context, key types.NamespacedName, existing, want *mcsv1beta1.ServiceImport) error {
	if want == nil {
		return r.remove(ctx, key, existing)
	}
	clusters := want.Status.Clusters
	current := existing
	switch {
	case existing == nil:
		current = want.DeepCopy()
		current.Status = mcsv1beta1.ServiceImportStatus{}
		if err := r.Writer.Create(ctx, key, current); err != nil {
			return err
		}
	case !sameSpec(existing, want):
		current = existing.DeepCopy()
		current.Labels, current.Annotations, current.Spec = want.Labels, want.Annotations, want.Spec
		if err := r.Writer.Update(ctx, key, current); err != nil {
			return err
		}
	}
	return r.writeClusters(ctx, key, current, clusters)
}

func (r *Reconciler) writeClusters(ctx context.Context, key types.NamespacedName, current *mcsv1beta1.ServiceImport, clusters []mcsv1beta1.ClusterStatus) error {
	if equality.Semantic.DeepEqual(current.Status.Clusters, clusters) {
		return nil
	}
	current = current.DeepCopy()
	current.Status.Clusters = clusters
	return r.Writer.UpdateStatus(ctx, key, current)
}

// remove deletes the aggregate of a service nobody exports any more. The broker lets a member delete only what lists nobody
// else, so the list is cleared first where others left theirs behind.
func (r *Reconciler) remove(ctx context.Context, key types.NamespacedName, existing *mcsv1beta1.ServiceImport) error {
	clusters := clusterNames(existing)
	if len(clusters) > 1 || (len(clusters) == 1 && clusters[0] != r.ClusterID) {
		cleared := existing.DeepCopy()
		cleared.Status.Clusters = nil
		if err := r.Writer.UpdateStatus(ctx, key, cleared); err != nil {
			return err
		}
		existing = cleared
	}
	return r.Writer.Delete(ctx, key, existing)
}
