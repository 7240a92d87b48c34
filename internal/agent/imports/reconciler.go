package imports

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	Demoted func() map[string]bool
	// Reached is which clusters are reached from this one, as far as that is stored.
	Reached       func() objects.ReachStates
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

	slicesToCome trigger.Delays
}

// slicesDelay is how long a new service without slices is not imported: exporters write record and
// slices side by side, and the record may arrive first.
const slicesDelay = 3 * time.Second

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
	if remaining := r.untilSlicesCome(key, in, plan); remaining > 0 {
		telemetry.Wait(ctx, objects.WaitForEndpoints)
		return ctrl.Result{RequeueAfter: remaining}, nil
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
	onlyHere := onlyExportedBy(cmp.Or(plan.Import, have.serviceImport), settings.ClusterID)
	appears, disappears := have.serviceImport == nil, plan.Import == nil
	if onlyHere && appears != disappears && r.defers(ctx, key) {
		return ctrl.Result{}, nil // services of other clusters go first
	}
	err = r.write(ctx, key, have, in, plan, !onlyHere)
	if objects.IsWriteConflict(err) {
		telemetry.Wait(ctx, objects.WaitForConflict)
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: held.recheck}, err
}

// untilSlicesCome returns for how long a new service is not imported because it has no slices yet.
// The arrival of a slice ends it.
func (r *Reconciler) untilSlicesCome(key types.NamespacedName, in Input, plan Plan) time.Duration {
	if !in.lacksSlices(plan) {
		return r.slicesToCome.Remaining(key, 0)
	}
	return r.slicesToCome.Remaining(key, slicesDelay)
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

// write applies the plan in an order in which a client that finds the name can use the service: the
// slices first, then the derived Service, and last the ServiceImport, from which DNS servers
// answer. kube-proxy refuses connections to a Service without endpoints, and by default looks again
// only after a second, so the slices must not come after the Service. Slices that are not wanted
// any more are deleted last: others replace them.
func (r *Reconciler) write(ctx context.Context, key types.NamespacedName, have imported, in Input, plan Plan, urgent bool) error {
	if urgent && (plan.Import == nil) != (have.serviceImport == nil) {
		r.Deferred.MarkUrgent()
	}
	if plan.Import == nil {
		return r.remove(ctx, key, have)
	}
	if have.serviceImport != nil && have.serviceImport.DeletionTimestamp != nil {
		telemetry.Wait(ctx, objects.WaitForDeletion) // a new one is created when it is gone
		return nil
	}
	var changes apply.Changes
	apply.DiffSlices(&changes, have.slices, plan.Slices)
	if urgent && !changes.Empty() {
		r.Deferred.MarkUrgent()
	}
	// A slice of one cluster that is refused does not keep the service of the others away.
	slicesErr := r.Writer.Apply(ctx, key, apply.Changes{Create: changes.Create, Update: changes.Update})
	derived, derivedErr := r.writeDerived(ctx, key, have.derived, plan.Derived)
	if objects.IsWriteConflict(derivedErr) {
		return errors.Join(slicesErr, derivedErr) // the ServiceImport would be written without its addresses
	}
	if derived != have.derived || derivedErr != nil {
		in.Derived, in.DerivedError = derived, derivedErr
		plan = plan.withAddresses(in)
		r.Observed(key, plan.Import)
	}
	current := have.serviceImport
	leaveImport := in.leavesImport()
	if !leaveImport {
		var err error
		if current, err = r.writeImport(ctx, key, have.serviceImport, plan.Import); err != nil {
			return errors.Join(slicesErr, derivedErr, err)
		}
	}
	unwanted := changes.Delete
	if plan.Derived.Want == nil && isDerived(derived, key) { // this cluster has another data plane now
		unwanted = append(unwanted, derived)
	}
	if err := errors.Join(slicesErr, r.Writer.Apply(ctx, key, apply.Changes{Delete: unwanted})); err != nil {
		return errors.Join(derivedErr, err)
	}
	if leaveImport {
		telemetry.Wait(ctx, objects.WaitForMigration)
		return derivedErr
	}
	return errors.Join(derivedErr, r.writeStatus(ctx, key, current, plan))
}

// writeImport writes the ServiceImport without its status, and returns it as written.
func (r *Reconciler) writeImport(
	ctx context.Context, key types.NamespacedName, have, want *mcsv1beta1.ServiceImport,
) (*mcsv1beta1.ServiceImport, error) {
	switch {
	case have == nil:
		created := want.DeepCopy()
		created.Status = mcsv1beta1.ServiceImportStatus{}
		if err := r.Writer.Create(ctx, key, created); err != nil {
			return nil, err
		}
		ctrl.LoggerFrom(ctx).Info("the service is imported")
		return created, nil
	case !sameImport(have, want):
		updated := have.DeepCopy()
		updated.Labels, updated.Annotations, updated.Spec = want.Labels, want.Annotations, want.Spec
		return updated, r.Writer.Update(ctx, key, updated)
	}
	return have, nil
}

// writeDerived writes the derived Service, and returns it as written. One that should not exist is
// deleted after the ServiceImport has other addresses.
func (r *Reconciler) writeDerived(ctx context.Context, key types.NamespacedName, have *corev1.Service, plan Derived) (*corev1.Service, error) {
	if plan.Want == nil {
		return have, nil
	}
	if have != nil && !plan.Replace && sameService(have, plan.Want) {
		return have, nil
	}
	want := plan.Want.DeepCopy()
	switch {
	case plan.Replace:
		if err := r.Writer.Delete(ctx, key, have); err != nil {
			return have, err
		}
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
	return apply.SameMetadata(a, b) && apply.SameImportSpec(&a.Spec, &b.Spec)
}

func (r *Reconciler) writeStatus(ctx context.Context, key types.NamespacedName, current *mcsv1beta1.ServiceImport, plan Plan) error {
	status := current.Status
	status.Clusters, status.EndpointSliceObjects = plan.Import.Status.Clusters, plan.Import.Status.EndpointSliceObjects
	status.Conditions = slices.Clone(status.Conditions)
	mergeConditions(&status.Conditions, plan.Import.Status.Conditions, current.Generation)
	if equality.Semantic.DeepEqual(&status, &current.Status) || r.defers(ctx, key) {
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
