package aggregate

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/agent/vip"
	"github.com/seamark-dev/seamark/internal/objects"
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
	// Pool gives the addresses of this member's blocks.
	Pool *vip.Pool
	// Remembered is what this cluster last saw of a service's addresses.
	Remembered func(context.Context, types.NamespacedName) Addresses
	// Starved is told which services could not get an address and why, with nil when they need none any more.
	SetShortage func(types.NamespacedName, error)
	// Later puts off what nobody waits for while services are being published.
	Deferred *trigger.Deferred

	mu    sync.Mutex
	since map[types.NamespacedName]time.Time // when a difference that is others' to mend was first seen
}

// Reconcile brings the aggregate of one service up to date, if that is this member's to do.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.Connected() {
		return ctrl.Result{}, nil // all are looked at when it is
	}
	if !r.Writer.CacheIsCurrent(ctx, key) {
		return ctrl.Result{RequeueAfter: apply.CacheTimeout}, nil
	}
	in := Input{ClusterID: r.ClusterID, BrokerNamespace: r.BrokerNamespace, Service: key, Stale: r.Stale(), Offer: r.offer(key)}
	var err error
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil {
		return ctrl.Result{}, err
	}
	existing := &mcsv1beta1.ServiceImport{}
	err = r.Broker.Get(ctx, types.NamespacedName{Namespace: r.BrokerNamespace, Name: objects.AggregateName(key)}, existing)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read the aggregate of %s: %w", key, err)
	}
	if err == nil {
		in.Existing = existing
		r.Pool.SetPublished(key, AddressesOf(existing).IPs)
	}
	in.Remembered = r.Remembered(ctx, key)
	plan := Decide(in)
	if !plan.Allocated && plan.Shortage == nil {
		r.Pool.Release(key)
	}
	r.SetShortage(key, plan.Shortage)
	wait := r.wait(key, plan)
	// Importers merge the records themselves; of the aggregate they need the address, when records and endpoints have arrived.
	if plan.Nothing() || r.Deferred.Defer(key) {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := r.write(ctx, key, in.Existing, plan, wait == 0); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return ctrl.Result{RequeueAfter: stepIn}, nil // another member was first; the watch shows what it wrote
		}
		return ctrl.Result{}, fmt.Errorf("write the aggregate of %s: %w", key, err)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

func (r *Reconciler) offer(key types.NamespacedName) func(corev1.IPFamily, netip.Addr) (netip.Addr, error) {
	return func(family corev1.IPFamily, wanted netip.Addr) (netip.Addr, error) {
		return r.Pool.Reserve(key, family == corev1.IPv6Protocol, wanted)
	}
}

// wait is how long this member still leaves the difference to others.
func (r *Reconciler) wait(key types.NamespacedName, plan Plan) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if plan.Nothing() || plan.Wait == 0 {
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

// write makes the changes that are this member's; due tells whether those it leaves to others for a while are too.
func (r *Reconciler) write(ctx context.Context, key types.NamespacedName, existing *mcsv1beta1.ServiceImport, plan Plan, due bool) error {
	current := existing
	switch {
	case plan.Delete && due:
		return r.Writer.Delete(ctx, key, existing)
	case plan.Spec && due && existing == nil:
		current = plan.Want.DeepCopy()
		current.Status = mcsv1beta1.ServiceImportStatus{}
		if err := r.Writer.Create(ctx, key, current); err != nil {
			return err
		}
	case plan.Spec && due:
		current = existing.DeepCopy()
		current.Labels, current.Annotations, current.Spec = plan.Want.Labels, plan.Want.Annotations, plan.Want.Spec
		if err := r.Writer.Update(ctx, key, current); err != nil {
			return err
		}
	}
	if !plan.Status || current == nil || r.Deferred.Defer(key) {
		return nil
	}
	current = current.DeepCopy()
	current.Status.Clusters = plan.Want.Status.Clusters
	return r.Writer.UpdateStatus(ctx, key, current)
}
