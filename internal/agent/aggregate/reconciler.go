package aggregate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// conflictDelay is when an aggregate is reconciled again after another member wrote it first. The
// watch mostly shows that earlier.
const conflictDelay = 2 * time.Second

// Reconciler maintains the aggregates that this member is responsible for.
type Reconciler struct {
	ClusterID       string
	BrokerNamespace string
	Broker          client.Client
	// Direct reads the broker without the cache.
	Direct client.Reader
	Writer *apply.Writer
	// Connected reports whether the broker's caches are filled.
	Connected func() bool
	// Taken returns why this cluster may not use its id, nil if it may.
	Taken func() error
	Stale func() map[string]bool
	// Demoted are the stale clusters that have lost their precedence; see member.Liveness.
	Demoted func() map[string]bool
	// ClusterOf returns what the broker's admin grants a member.
	ClusterOf objects.ClusterOf
	// Accepts returns what reports whether a clusterset IP may be used for a service.
	Accepts func(context.Context, types.NamespacedName) func(netip.Addr) bool
	// BlockOwner returns the member whose block contains a clusterset IP, "" if there is none.
	BlockOwner func(netip.Addr) string
	// Deferred postpones writes that no client waits for while services are being published.
	Deferred *trigger.Deferred

	delays  trigger.Delays // of differences that are left to others
	waiting waitingTurns   // of the own entry
}

// Reconcile brings the aggregate of one service up to date, as far as it is this member's to write.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.Connected() {
		telemetry.Wait(ctx, objects.NotConnectedReason(r.Taken()))
		return ctrl.Result{}, nil // all aggregates are reconciled when the broker is reached
	}
	if !r.Writer.CacheIsCurrent(ctx, key) {
		telemetry.Wait(ctx, objects.WaitForCache)
		return ctrl.Result{RequeueAfter: apply.CacheTimeout}, nil
	}
	in, err := r.gather(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := Decide(in)
	remaining, turn := r.remainingDelay(key, plan), r.remainingTurn(key, plan)
	if plan.Waits != "" && (plan.Delay == 0 || remaining > 0) {
		telemetry.Wait(ctx, plan.Waits)
	}
	next := ctrl.Result{RequeueAfter: earlier(remaining, turn)}
	// No client waits for the aggregate: importers read the records.
	if plan.Empty() || r.defers(ctx, key) {
		return next, nil
	}
	err = r.write(ctx, key, in.Existing, plan, remaining == 0, turn == 0)
	var entry *entryError
	isEntry := errors.As(err, &entry)
	if isEntry && !isEntryConflict(entry) {
		// The reconcile is retried soon, but the entry is not written before the pause is over.
		r.waiting.pause(key, failurePause+objects.Jitter(in.ClusterID, key, failurePause+turns(len(in.Records))))
	}
	switch {
	case isEntry && isEntryConflict(entry):
		telemetry.Wait(ctx, objects.WaitForConflict)
		next.RequeueAfter = r.waiting.pause(key, conflictPause+objects.Jitter(in.ClusterID, key, conflictPause))
	case objects.IsWriteConflict(err):
		telemetry.Wait(ctx, objects.WaitForConflict) // the watch shows what another member wrote
		next.RequeueAfter = conflictDelay
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("write the aggregate of %s: %w", key, err)
	}
	return next, nil
}

// gather reads everything that Decide needs.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName) (Input, error) {
	in := Input{
		ClusterID: r.ClusterID, BrokerNamespace: r.BrokerNamespace, Service: key, Stale: r.Stale(),
		Accepts: r.Accepts(ctx, key), BlockOwner: r.BlockOwner,
	}
	var err error
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil {
		return in, err
	}
	in.Records = merge.Demote(objects.AdmittedRecords(in.Records, r.ClusterOf), r.Demoted())
	name := types.NamespacedName{Namespace: r.BrokerNamespace, Name: objects.AggregateName(key)}
	in.Existing, err = index.GetOrNil(ctx, r.Broker, name, &mcsv1beta1.ServiceImport{})
	return in, err
}

// defers reports whether a write that no client waits for is postponed.
func (r *Reconciler) defers(ctx context.Context, key types.NamespacedName) bool {
	if !r.Deferred.Defer(key) {
		return false
	}
	telemetry.Wait(ctx, objects.WaitForBurst)
	return true
}

// remainingDelay returns for how long this member still leaves the difference to others.
func (r *Reconciler) remainingDelay(key types.NamespacedName, plan Plan) time.Duration {
	if plan.Empty() {
		return r.delays.Remaining(key, 0)
	}
	return r.delays.Remaining(key, plan.Delay)
}

// remainingTurn returns for how long this member still waits before it writes its own entry.
func (r *Reconciler) remainingTurn(key types.NamespacedName, plan Plan) time.Duration {
	if !plan.Status {
		r.waiting.end(key)
		return 0
	}
	return r.waiting.remaining(key, plan.Ahead)
}

// earlier returns the shorter of two times to wait. Zero means that there is nothing to wait for.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// write makes the changes of the plan. due reports whether the delay is over, so that this member
// makes those changes that it first left to others; itsTurn whether it may write its entry now.
func (r *Reconciler) write(
	ctx context.Context, key types.NamespacedName, existing *mcsv1beta1.ServiceImport, plan Plan, due, itsTurn bool,
) error {
	current := existing
	switch {
	case plan.Delete && due:
		return r.Writer.Delete(ctx, key, existing)
	case plan.Spec && due && existing == nil:
		current = plan.Want.DeepCopy()
		current.Status = mcsv1beta1.ServiceImportStatus{}
		err := r.Writer.Create(ctx, key, current)
		if apierrors.IsAlreadyExists(err) {
			return r.restoreLabels(ctx, key, plan.Want, err)
		}
		if err != nil {
			return err
		}
		itsTurn = true // the others add themselves to its list
	case plan.Spec && due:
		current = existing.DeepCopy()
		current.Labels, current.Annotations, current.Spec = plan.Want.Labels, plan.Want.Annotations, plan.Want.Spec
		if err := r.Writer.Update(ctx, key, current); err != nil {
			return err
		}
	}
	if !plan.Status || !itsTurn || current == nil || r.defers(ctx, key) {
		return nil
	}
	if err := r.writeEntry(ctx, key, current, plan.Want.Status.Clusters); err != nil {
		return &entryError{err}
	}
	r.waiting.end(key)
	return nil
}

// restoreLabels restores the aggregate of a service that exists although the cache has none: its
// labels were edited, so that it is not selected. If another member has just created it, exists is
// returned, and the watch shows it.
func (r *Reconciler) restoreLabels(ctx context.Context, key types.NamespacedName, want *mcsv1beta1.ServiceImport, exists error) error {
	current := &mcsv1beta1.ServiceImport{}
	if err := r.Direct.Get(ctx, client.ObjectKeyFromObject(want), current); err != nil {
		return fmt.Errorf("read what is in the place of the aggregate: %w", err)
	}
	if service, ok := objects.ServiceOf(current); ok && service == key {
		return exists
	}
	current.Labels, current.Annotations, current.Spec = want.Labels, want.Annotations, want.Spec
	return r.Writer.Update(ctx, key, current)
}

// entryError is the error of writing this member's entry.
type entryError struct{ error }

// Unwrap returns the error of the API server.
func (e *entryError) Unwrap() error { return e.error }

// writeEntry adds this member to the exporters that an aggregate lists, or removes it. A patch is
// applied to the aggregate as it is, so exporters that write at the same time do not conflict. The
// first entry is written with the list, which must not replace one that another exporter has just
// created.
func (r *Reconciler) writeEntry(
	ctx context.Context, key types.NamespacedName, current *mcsv1beta1.ServiceImport, want []mcsv1beta1.ClusterStatus,
) error {
	current = current.DeepCopy()
	if patch := entryPatch(r.ClusterID, clusterNames(current)); patch != nil {
		err := r.Writer.PatchStatus(ctx, key, current, client.RawPatch(types.JSONPatchType, patch))
		if !apierrors.IsForbidden(err) {
			return err
		}
		// The broker was deployed by an earlier version, whose members may not patch.
	}
	current.Status.Clusters = want
	return r.Writer.UpdateStatus(ctx, key, current)
}
