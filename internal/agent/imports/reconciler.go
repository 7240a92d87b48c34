package imports

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Reconciler imports the clusterset's services into this cluster.
type Reconciler struct {
	Local           client.Client
	Broker          client.Client
	BrokerNamespace string
	Writer          *apply.Writer
	// Settings are known once the broker has been reached.
	Settings func() (Settings, bool)
	// Taken returns why this cluster may not use its id, nil if it may.
	Taken func() error
	// ClusterOf returns what the broker's admin grants a member.
	ClusterOf objects.ClusterOf
	// Stale are the clusters that have not been heard from.
	Stale func() map[string]bool
	// Demoted are the stale clusters that have lost their precedence; see member.Liveness.
	Demoted       func() map[string]bool
	IsNodeAddress func(netip.Addr) bool
	IsNode        func(name string) bool
	// Admits reports whether a service of a member is within the member's limits.
	Admits func(cluster string, service types.NamespacedName) bool
	// WhyNot returns why a member may not publish an address, or "" if it may.
	WhyNot   func(cluster string, addr netip.Addr) string
	RegionOf func(node string) string
	// ReserveDerived returns why no further Service may be derived. If one may, it counts it;
	// release takes that back.
	ReserveDerived func(types.NamespacedName) (release func(), err error)
	// Accepts returns what reports whether a clusterset IP may be used for a service.
	Accepts func(context.Context, types.NamespacedName) func(netip.Addr) bool
	// BlockOwner returns the member whose block contains a clusterset IP, "" if there is none.
	BlockOwner func(netip.Addr) string
	// Remembered returns the clusterset IPs that this cluster last saw of a service.
	Remembered func(context.Context, types.NamespacedName, []*v1alpha1.ExportRecord) []netip.Addr
	// CreateNamespaces creates missing namespaces instead of leaving their services out.
	CreateNamespaces bool
	Recorder         events.EventRecorder
	// Lost holds the services whose records disappeared while the broker's watch was interrupted.
	Lost *Lost
	// Withdrawals decides whose endpoints stay although the broker has no record of them.
	Withdrawals *Withdrawals
	// Observed is called with each import as it is decided, with nil if there is none.
	Observed func(types.NamespacedName, *mcsv1beta1.ServiceImport)
	// Deferred postpones writes that no client waits for while services are being imported.
	Deferred *trigger.Deferred
}

// conflictDelay is when a reconcile is repeated after another client changed an object first.
const conflictDelay = 100 * time.Millisecond

// Reconcile brings this cluster's copy of one service up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.Writer.CacheIsCurrent(ctx, key) {
		telemetry.Wait(ctx, objects.WaitForCache)
		return ctrl.Result{RequeueAfter: apply.CacheTimeout}, nil
	}
	have, err := r.existing(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	settings, connected := r.Settings()
	if !connected { // reconciled again when the broker is reached
		telemetry.Wait(ctx, objects.NotConnectedReason(r.Taken()))
		return ctrl.Result{}, r.refreshOwn(ctx, key, settings, have)
	}
	in, held, err := r.gather(ctx, key, settings, have)
	if err != nil {
		return ctrl.Result{}, err
	}
	if remaining := max(r.Lost.Remaining(key), held.settling); remaining > 0 {
		telemetry.Wait(ctx, objects.WaitForRecords)
		return ctrl.Result{RequeueAfter: remaining}, r.keep(ctx, key, settings, have, in.Held)
	}
	plan := Decide(in)
	if len(in.Held.Clusters) > 0 {
		telemetry.Wait(ctx, objects.WaitForIntent)
		if plan.Import == nil {
			return ctrl.Result{RequeueAfter: held.recheck}, r.keep(ctx, key, settings, have, in.Held)
		}
		have.slices, plan.Slices = in.Held.leaveOut(have.slices), in.Held.leaveOut(plan.Slices)
	}
	if plan.Waits != "" {
		telemetry.Wait(ctx, plan.Waits)
	}
	if plan.Import != nil {
		if ok, err := r.namespaceReady(ctx, key.Namespace); err != nil {
			return ctrl.Result{}, err
		} else if !ok {
			r.Observed(key, nil)
			telemetry.Wait(ctx, objects.WaitForNamespace)
			return ctrl.Result{}, nil // the namespace's own event brings the service back
		}
	}
	r.Observed(key, plan.Import)
	onlyHere := onlyExportedBy(plan.Import, settings.ClusterID)
	if onlyHere && have.serviceImport == nil && r.defers(ctx, key) {
		return ctrl.Result{}, nil // services of other clusters go first
	}
	err = r.write(ctx, key, have, in, plan, !onlyHere)
	if objects.IsWriteConflict(err) {
		telemetry.Wait(ctx, objects.WaitForConflict)
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: held.recheck}, err
}

// defers reports whether a write that no client waits for is postponed.
func (r *Reconciler) defers(ctx context.Context, key types.NamespacedName) bool {
	if !r.Deferred.Defer(key) {
		return false
	}
	telemetry.Wait(ctx, objects.WaitForBurst)
	return true
}

// onlyExportedBy reports whether a cluster is the only one that exports a service.
func onlyExportedBy(si *mcsv1beta1.ServiceImport, clusterID string) bool {
	return si != nil && len(si.Status.Clusters) == 1 && si.Status.Clusters[0].Cluster == clusterID
}

// write applies the plan. The ServiceImport comes first, because slices name its uid as their
// owner. A second write adds the addresses of a new derived Service.
func (r *Reconciler) write(ctx context.Context, key types.NamespacedName, have imported, in Input, plan Plan, urgent bool) error {
	if plan.Import == nil {
		return r.remove(ctx, key, have)
	}
	if have.serviceImport != nil && have.serviceImport.DeletionTimestamp != nil {
		telemetry.Wait(ctx, objects.WaitForDeletion) // a new one is created when it is gone
		return nil
	}
	current, err := r.writeImport(ctx, key, have.serviceImport, plan.Import)
	if err != nil {
		return err
	}
	for _, s := range plan.Slices {
		s.OwnerReferences = []metav1.OwnerReference{ownerOf(current)}
	}
	var changes apply.Changes
	apply.DiffSlices(&changes, have.slices, plan.Slices)
	if urgent && (current != have.serviceImport || !changes.Empty()) {
		r.Deferred.MarkUrgent()
	}
	if err := r.Writer.Apply(ctx, key, changes); err != nil {
		return err
	}
	if have.derived == nil && plan.Derived.Want != nil && r.defers(ctx, key) {
		return nil // creating a Service costs three writes; endpoints of other services go first
	}
	current, plan, err = r.writeAddresses(ctx, key, have, in, plan, current)
	return errors.Join(err, r.writeStatus(ctx, key, current, plan))
}

// writeAddresses writes the derived Service, and then its addresses to the ServiceImport. It
// returns the ServiceImport as written, and the plan completed with the addresses.
func (r *Reconciler) writeAddresses(
	ctx context.Context, key types.NamespacedName, have imported, in Input, plan Plan, current *mcsv1beta1.ServiceImport,
) (*mcsv1beta1.ServiceImport, Plan, error) {
	derived, derivedErr := r.writeDerived(ctx, key, have.derived, plan.Derived)
	if derived == have.derived && derivedErr == nil {
		return current, plan, nil
	}
	in.Existing, in.Derived, in.DerivedError = current, derived, derivedErr
	plan = plan.withAddresses(in)
	updated, err := r.writeImport(ctx, key, current, plan.Import)
	if err != nil {
		return current, plan, errors.Join(derivedErr, err)
	}
	return updated, plan, derivedErr
}

// writeImport writes the ServiceImport without its status, and returns it as written.
func (r *Reconciler) writeImport(
	ctx context.Context, key types.NamespacedName, have, want *mcsv1beta1.ServiceImport,
) (*mcsv1beta1.ServiceImport, error) {
	switch {
	case have == nil:
		created := want.DeepCopy()
		created.Status = mcsv1beta1.ServiceImportStatus{}
		err := r.Writer.Create(ctx, key, created)
		if err == nil {
			ctrl.LoggerFrom(ctx).Info("the service is imported")
		}
		return created, err
	case !sameImport(have, want):
		updated := have.DeepCopy()
		updated.Labels, updated.Annotations, updated.Spec = want.Labels, want.Annotations, want.Spec
		return updated, r.Writer.Update(ctx, key, updated)
	}
	return have, nil
}

// writeDerived writes the derived Service, and returns it as written.
func (r *Reconciler) writeDerived(ctx context.Context, key types.NamespacedName, have *corev1.Service, plan Derived) (*corev1.Service, error) {
	if plan.Want == nil {
		if !isDerived(have, key) {
			return have, nil
		}
		return nil, r.Writer.Delete(ctx, key, have) // another data plane was chosen
	}
	want := plan.Want.DeepCopy()
	switch {
	case plan.Replace:
		if err := r.Writer.Delete(ctx, key, have); err != nil {
			return have, err
		}
	case have != nil && sameService(have, want):
		return have, nil
	case have != nil:
		if err := r.Writer.Update(ctx, key, want); err != nil {
			return have, err
		}
		return want, nil
	}
	release, err := r.ReserveDerived(key)
	if err != nil {
		return nil, err
	}
	if err := r.Writer.Create(ctx, key, want); err != nil {
		release()
		return nil, err
	}
	return want, nil
}

func ownerOf(si *mcsv1beta1.ServiceImport) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName, Name: si.Name, UID: si.UID,
	}
}

// remove deletes what was imported. A ServiceImport that is not managed by Seamark stays.
func (r *Reconciler) remove(ctx context.Context, key types.NamespacedName, have imported) error {
	var changes apply.Changes
	apply.DiffSlices(&changes, have.slices, nil)
	if isDerived(have.derived, key) && have.derived.DeletionTimestamp == nil {
		changes.Delete = append(changes.Delete, have.derived)
	}
	if si := have.serviceImport; si != nil && si.DeletionTimestamp == nil && objects.IsManagedImport(si) {
		changes.Delete = append(changes.Delete, si)
		ctrl.LoggerFrom(ctx).Info("the service is no longer imported")
	}
	return r.Writer.Apply(ctx, key, changes)
}

func sameImport(a, b *mcsv1beta1.ServiceImport) bool {
	return apply.SameMetadata(a, b) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func (r *Reconciler) writeStatus(ctx context.Context, key types.NamespacedName, current *mcsv1beta1.ServiceImport, plan Plan) error {
	status := current.Status
	status.Clusters, status.EndpointSliceObjects = plan.Import.Status.Clusters, plan.Import.Status.EndpointSliceObjects
	status.Conditions = slices.Clone(status.Conditions)
	mergeConditions(&status.Conditions, plan.Import.Status.Conditions, current.Generation)
	if equality.Semantic.DeepEqual(status, current.Status) || r.defers(ctx, key) {
		return nil
	}
	updated := current.DeepCopy()
	updated.Status = status
	if err := r.Writer.UpdateStatus(ctx, key, updated); err != nil {
		return err
	}
	if refused := newlyRefused(current.Status.Conditions, updated.Status.Conditions); refused != "" {
		r.Recorder.Eventf(updated, nil, corev1.EventTypeWarning, "AddressRefused", "Import", "%s", refused)
	}
	r.announceHeld(current, updated)
	return nil
}
