package imports

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/merge"
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
	// Stale are the clusters that have not been heard from.
	Stale         func() map[string]bool
	IsNodeAddress func(netip.Addr) bool
	IsNode        func(name string) bool
	RegionOf      func(node string) string
	// CreateNamespaces makes missing namespaces rather than leaving their services out.
	CreateNamespaces bool
	Recorder         events.EventRecorder
	// Lost remembers services whose records vanished unseen.
	Lost *Lost
	// Observed is told the state of each import as it is decided, nil when there is none.
	Observed func(types.NamespacedName, *mcsv1beta1.ServiceImport)
	// Later puts off what nobody waits for while services are being imported.
	Deferred *trigger.Deferred
}

// Reconcile brings this cluster's copy of one service up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.Writer.CacheIsCurrent(ctx, key) {
		return ctrl.Result{RequeueAfter: apply.CacheTimeout}, nil
	}
	have, err := r.existing(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	settings, connected := r.Settings()
	wait := r.Lost.Wait(key)
	if !connected || wait > 0 {
		// What is here stays as it is, but for this cluster's own endpoints. It is looked at again when the broker is reached.
		return ctrl.Result{RequeueAfter: wait}, r.refreshOwn(ctx, key, have)
	}
	in, err := r.gather(ctx, key, settings)
	if err != nil {
		return ctrl.Result{}, err
	}
	in.Existing, in.Derived = have.serviceImport, have.derived
	plan := Decide(in)
	if plan.Import != nil {
		if ok, err := r.namespaceReady(ctx, key.Namespace); err != nil {
			return ctrl.Result{}, err
		} else if !ok {
			return ctrl.Result{}, nil // it comes with the namespace
		}
	}
	r.Observed(key, plan.Import)
	atHome := onlyOf(plan.Import, settings.ClusterID)
	if atHome && have.serviceImport == nil && r.Deferred.Defer(key) {
		return ctrl.Result{}, nil // what is on its way to other clusters comes first
	}
	err = r.write(ctx, key, have, in, plan, !atHome)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil // somebody edited it: decide again on what is there now
	}
	return ctrl.Result{}, err
}

// onlyOf tells a service that no other cluster exports.
func onlyOf(si *mcsv1beta1.ServiceImport, clusterID string) bool {
	return si != nil && len(si.Status.Clusters) == 1 && si.Status.Clusters[0].Cluster == clusterID
}

// imported is what this cluster holds of a service.
type imported struct {
	serviceImport *mcsv1beta1.ServiceImport
	// derived is the Service with the derived one's name, whosever it is.
	derived *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (r *Reconciler) existing(ctx context.Context, key types.NamespacedName) (imported, error) {
	var have imported
	si := &mcsv1beta1.ServiceImport{}
	err := r.Local.Get(ctx, key, si)
	if client.IgnoreNotFound(err) != nil {
		return have, fmt.Errorf("read ServiceImport %s: %w", key, err)
	}
	if err == nil {
		have.serviceImport = si
	}
	svc := &corev1.Service{}
	err = r.Local.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: objects.DerivedServiceName(key.Name)}, svc)
	if client.IgnoreNotFound(err) != nil {
		return have, fmt.Errorf("read the derived Service of %s: %w", key, err)
	}
	if err == nil {
		have.derived = svc
	}
	have.slices, err = index.ImportedSlices(ctx, r.Local, key)
	return have, err
}

func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName, settings Settings) (Input, error) {
	in := Input{
		Settings: settings, Service: key, Stale: r.Stale(), IsNodeAddress: r.IsNodeAddress, IsNode: r.IsNode,
		IsOthersAddress: func(addr netip.Addr) bool { return index.HasOlderClaim(ctx, r.Broker, addr, key) },
	}
	var err error
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil || len(in.Records) == 0 {
		return in, err
	}
	foreign, err := index.BrokerSlices(ctx, r.Broker, key)
	if err != nil {
		return in, err
	}
	for _, s := range foreign {
		if s.Labels[mcsv1beta1.LabelSourceCluster] != settings.ClusterID {
			in.Slices = append(in.Slices, s)
		}
	}
	own, err := r.ownSlices(ctx, key, settings.ClusterID, in.Records)
	if err != nil {
		return in, err
	}
	in.Slices = append(in.Slices, own...)
	in.Aggregate, err = r.aggregate(ctx, key)
	return in, err
}

// aggregate is the ServiceImport on the broker, or nil.
func (r *Reconciler) aggregate(ctx context.Context, key types.NamespacedName) (*mcsv1beta1.ServiceImport, error) {
	aggregate := &mcsv1beta1.ServiceImport{}
	err := r.Broker.Get(ctx, types.NamespacedName{Namespace: r.BrokerNamespace, Name: objects.AggregateName(key)}, aggregate)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the aggregate of %s: %w", key, err)
	}
	return aggregate, nil
}

// ownSlices are this cluster's endpoints of a service it exports, straight from its own slices.
func (r *Reconciler) ownSlices(ctx context.Context, key types.NamespacedName, clusterID string, records []*v1alpha1.ExportRecord) ([]*discoveryv1.EndpointSlice, error) {
	if !slices.ContainsFunc(records, func(rec *v1alpha1.ExportRecord) bool { return string(rec.Spec.ClusterID) == clusterID }) {
		return nil, nil
	}
	return r.localSlices(ctx, key, clusterID, merge.Merge(records).Mode)
}

func (r *Reconciler) localSlices(ctx context.Context, key types.NamespacedName, clusterID string, mode merge.Mode) ([]*discoveryv1.EndpointSlice, error) {
	svc := &corev1.Service{}
	if err := r.Local.Get(ctx, key, svc); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	sources, err := index.SourceSlices(ctx, r.Local, key)
	if err != nil {
		return nil, err
	}
	exported := &mcsv1beta1.ServiceExport{}
	if err := r.Local.Get(ctx, key, exported); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	return exports.Slices(exports.Input{
		Export:   exported,
		Settings: exports.Settings{ClusterID: clusterID, BrokerNamespace: r.BrokerNamespace},
		Service:  svc, Slices: sources, RegionOf: r.RegionOf,
	}, mode), nil
}

// namespaceReady tells whether services can be imported into a namespace.
func (r *Reconciler) namespaceReady(ctx context.Context, name string) (bool, error) {
	ns := &corev1.Namespace{}
	err := r.Local.Get(ctx, types.NamespacedName{Name: name}, ns)
	if apierrors.IsNotFound(err) && r.CreateNamespaces {
		ns.Name = name
		ns.Labels = map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}
		if err := r.Local.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("create namespace %s for its imports: %w", name, err)
		}
		return true, nil
	}
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return ns.DeletionTimestamp == nil, nil
}

// write applies the plan. The ServiceImport comes first, because slices and Service name its uid as their owner; it gets its addresses
// when the Service has them, in a second write if that is new.
func (r *Reconciler) write(ctx context.Context, key types.NamespacedName, have imported, in Input, plan Plan, urgent bool) error {
	if plan.Import == nil {
		return r.remove(ctx, key, have)
	}
	if have.serviceImport != nil && have.serviceImport.DeletionTimestamp != nil {
		return nil // the one after it is ours
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
	if have.derived == nil && plan.Derived.Want != nil && r.Deferred.Defer(key) {
		return nil // a new Service is three dear writes; endpoints of others that are on their way come before them
	}
	current, plan, err = r.writeAddresses(ctx, key, have, in, plan, current)
	return errors.Join(err, r.writeStatus(ctx, key, current, plan))
}

// writeAddresses writes the derived Service and tells its addresses on the ServiceImport. It returns the ServiceImport as it is then, and the plan made
// with what was learned.
func (r *Reconciler) writeAddresses(ctx context.Context, key types.NamespacedName, have imported, in Input, plan Plan, current *mcsv1beta1.ServiceImport) (*mcsv1beta1.ServiceImport, Plan, error) {
	derived, problem := r.writeDerived(ctx, key, have.derived, plan.Derived, ownerOf(current))
	if derived == have.derived && problem == nil {
		return current, plan, nil
	}
	in.Existing, in.Derived = current, derived
	if problem != nil {
		in.Problem = problem.Error()
	}
	// The aggregate may have come meanwhile: then what it says goes with the same write.
	aggregate, err := r.aggregate(ctx, key)
	if err != nil {
		return current, plan, errors.Join(problem, err)
	}
	in.Aggregate = aggregate
	plan = Decide(in)
	updated, err := r.writeImport(ctx, key, current, plan.Import)
	if err != nil {
		return current, plan, errors.Join(problem, err)
	}
	return updated, plan, problem
}

// writeImport writes all but the status, and returns the ServiceImport as it is then.
func (r *Reconciler) writeImport(ctx context.Context, key types.NamespacedName, have, want *mcsv1beta1.ServiceImport) (*mcsv1beta1.ServiceImport, error) {
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

// writeDerived writes the derived Service, and returns it as it is then.
func (r *Reconciler) writeDerived(ctx context.Context, key types.NamespacedName, have *corev1.Service, plan Derived, owner metav1.OwnerReference) (*corev1.Service, error) {
	if plan.Want == nil {
		if !isDerived(have, key) {
			return have, nil
		}
		return nil, r.Writer.Delete(ctx, key, have) // another data plane was chosen
	}
	want := plan.Want.DeepCopy()
	want.OwnerReferences = []metav1.OwnerReference{owner}
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
	if err := r.Writer.Create(ctx, key, want); err != nil {
		return nil, err
	}
	return want, nil
}

func ownerOf(si *mcsv1beta1.ServiceImport) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName, Name: si.Name, UID: si.UID,
	}
}

// remove takes back what was imported. A ServiceImport somebody else made is left alone.
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
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

func (r *Reconciler) writeStatus(ctx context.Context, key types.NamespacedName, current *mcsv1beta1.ServiceImport, plan Plan) error {
	updated := current.DeepCopy()
	updated.Status.Clusters = plan.Import.Status.Clusters
	updated.Status.EndpointSliceObjects = plan.Import.Status.EndpointSliceObjects
	for _, c := range plan.Import.Status.Conditions {
		c.ObservedGeneration = current.Generation
		meta.SetStatusCondition(&updated.Status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(updated.Status, current.Status) || r.Deferred.Defer(key) {
		return nil
	}
	if err := r.Writer.UpdateStatus(ctx, key, updated); err != nil {
		return err
	}
	if len(plan.Refused) > 0 && readyMessage(updated) != readyMessage(current) {
		r.Recorder.Eventf(updated, nil, corev1.EventTypeWarning, "AddressRefused", "Import", "not imported: %.900s", strings.Join(plan.Refused, "; "))
	}
	return nil
}

func readyMessage(si *mcsv1beta1.ServiceImport) string {
	if c := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)); c != nil {
		return c.Message
	}
	return ""
}
