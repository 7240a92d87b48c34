package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/aggregate"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
)

// The backoff of failed reconciles: short at first, then long enough not to overload a failing
// server. Half of it is random; see jitteredBackoff.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// Names of the reconcilers, also in metrics and in what the agent waits for.
const (
	exportReconciler    = "export"
	aggregateReconciler = "aggregate"
	importReconciler    = "import"
)

func staticMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil }

func (a *agent) addReconcilers(context.Context) error {
	return errors.Join(a.addExport(), a.addAggregate(), a.addImport(), a.addIdentity())
}

// addController adds a controller for a reconciler. Its writers are instrumented, so that the time
// from when a service was enqueued until it was written is measured.
func (a *agent) addController(
	name string, r reconcile.Reconciler, hop string, writers map[string]*apply.Writer, sources ...source.Source,
) error {
	instrumented := &telemetry.InstrumentedReconciler{Reconciler: r, Name: name, Hop: hop, Metrics: a.metrics}
	for server, w := range writers {
		w.OnWrite = a.countWrites(server, instrumented)
	}
	return a.control(name, instrumented, sources)
}

// newWriter returns a writer that makes the writes of one reconcile as this agent does.
func (a *agent) newWriter(c client.Client) *apply.Writer {
	w := apply.NewWriter(c)
	w.WriteAll = a.writeAll
	return w
}

// runController adds a controller to the manager.
func (a *agent) runController(name string, r *telemetry.InstrumentedReconciler, sources []source.Source) error {
	a.metrics.Add("seamark_queue_depth", "Services in the queue of a reconciler.", prometheus.Labels{"reconciler": name}, r.Depth)
	c, err := controller.New(name, a.manager, controller.Options{
		Reconciler:  r,
		NewQueue:    r.NewQueue,
		RateLimiter: newBackoff(),
		LogConstructor: func(request *reconcile.Request) logr.Logger {
			log := a.Log.WithName(name)
			if request == nil {
				return log.V(1) // controller-runtime logs a line for each source it starts
			}
			if request.Namespace == "" {
				return log // the identity is the cluster's, not a service's
			}
			return log.WithValues("service", request.String())
		},
	})
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("set up %s: %w", name, err)
		}
	}
	return nil
}

func (a *agent) addExport() error {
	local, remote := a.manager.GetCache(), a.broker.GetCache()
	deferred := trigger.NewDeferred(&a.burst)
	localWriter, brokerWriter := a.newWriter(a.manager.GetClient()), a.newWriter(a.broker.GetClient())
	return a.addController(exportReconciler, &exports.Reconciler{
		Local: a.manager.GetClient(), Broker: a.broker.GetClient(), LocalWriter: localWriter, BrokerWriter: brokerWriter,
		Settings: a.exportSettings, Taken: a.heartbeat.ClusterIDTaken, RegionOf: a.nodes.RegionOf, ClusterOf: a.clusters.Get,
		Admits: a.usages.admitsOwn, OverLimit: a.overLimit,
		Recorder: a.manager.GetEventRecorder("seamark-agent"),
		Deferred: deferred, Observed: a.observeExport, Stale: a.state.Liveness.Stale, Demoted: a.state.Liveness.Demoted,
		Pool: a.pool, Accepts: a.acceptsFor, Remembered: a.lastKnownAddresses, Withdrawals: &a.withdrawals,
		LeavesStatus: a.migration.leavesStatus,
	}, "publish", map[string]*apply.Writer{serverLocal: localWriter, serverBroker: brokerWriter},
		trigger.WatchWith(local, &mcsv1beta1.ServiceExport{}, trigger.Name,
			trigger.Hooks[*mcsv1beta1.ServiceExport]{Changed: a.withdrawals.ExportChanged}),
		trigger.WatchWith(local, &corev1.Service{}, trigger.Name, trigger.Hooks[*corev1.Service]{Changed: a.withdrawals.ServiceChanged}),
		trigger.WatchWith(local, &discoveryv1.EndpointSlice{}, keysFrom(objects.SourceService),
			trigger.Hooks[*discoveryv1.EndpointSlice]{Lost: a.withdrawals.SliceLost}),
		trigger.Watch(remote, &v1alpha1.ExportRecord{}, a.claimKeys),
		trigger.Watch(remote, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) []types.NamespacedName {
			if s.Labels[mcsv1beta1.LabelSourceCluster] != a.membership.ClusterID {
				return nil // endpoints of other clusters do not change what this one publishes
			}
			return brokerKeys(s)
		}),
		a.exportPush.Source(), deferred.Source(),
	)
}

func (a *agent) addAggregate() error {
	remote := a.broker.GetCache()
	deferred := trigger.NewDeferred(&a.burst)
	writer := a.newWriter(a.broker.GetClient()) // not the exporter's: a reconciler waits for its own writes only
	return a.addController(aggregateReconciler, &aggregate.Reconciler{
		ClusterID: a.membership.ClusterID, BrokerNamespace: a.membership.Namespace,
		Broker: a.broker.GetClient(), Direct: a.brokerDirect, Writer: writer,
		Stale: a.state.Liveness.Stale, Demoted: a.state.Liveness.Demoted, Taken: a.heartbeat.ClusterIDTaken,
		ClusterOf: a.clusters.Get, Connected: a.connected,
		Accepts: a.acceptsFor, BlockOwner: a.owners.Of, Deferred: deferred,
	}, "aggregate", map[string]*apply.Writer{serverBroker: writer},
		trigger.Watch(remote, &v1alpha1.ExportRecord{}, a.claimKeys),
		trigger.WatchWith(remote, &mcsv1beta1.ServiceImport{}, brokerKeys[*mcsv1beta1.ServiceImport], aggregate.Hooks(a.membership.ClusterID)),
		a.aggregatePush.Source(), deferred.Source(),
	)
}

func (a *agent) addImport() error {
	local, remote := a.manager.GetCache(), a.broker.GetCache()
	lost, deferred := imports.NewLost(a.state.Liveness.BrokerWatchIsLive), trigger.NewDeferred(&a.burst)
	writer := a.newWriter(a.manager.GetClient())
	records := recordLost[*v1alpha1.ExportRecord](lost)
	records.Changed = a.heldImports.RecordChanged
	aggregates := recordLost[*mcsv1beta1.ServiceImport](lost)
	aggregates.Matters = aggregate.ContentDiffers
	reconciler := &imports.Reconciler{
		Local: a.manager.GetClient(), Broker: a.broker.GetClient(), BrokerNamespace: a.membership.Namespace, Writer: writer,
		Settings: a.importSettings, Taken: a.heartbeat.ClusterIDTaken, Stale: a.state.Liveness.Stale, Demoted: a.state.Liveness.Demoted,
		Reached: a.reachStates, ClusterOf: a.clusters.Get, WhyNot: a.clusters.WhyNot, Admits: a.usages.admits, ReserveDerived: a.reserveDerived,
		IsNodeAddress: a.nodes.IsAddress, IsNode: a.nodes.IsNode, RegionOf: a.nodes.RegionOf,
		CreateNamespaces: a.CreateNamespaces, Recorder: a.manager.GetEventRecorder("seamark-agent"), Lost: lost, Deferred: deferred,
		Observed: a.observeImport, Accepts: a.acceptsFor, BlockOwner: a.owners.Of, Remembered: a.lastKnownAddresses,
		Withdrawals: &a.heldImports,
	}
	return a.addController(importReconciler, a.failedOver.Reconciler(reconciler), "import", map[string]*apply.Writer{serverLocal: writer},
		trigger.WatchWith(remote, &v1alpha1.ExportRecord{}, a.claimKeys, records),
		trigger.WatchWith(remote, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) []types.NamespacedName {
			if s.Labels[mcsv1beta1.LabelSourceCluster] == a.membership.ClusterID {
				return nil // endpoints of this cluster come from its own slices
			}
			return brokerKeys(s)
		}, recordLost[*discoveryv1.EndpointSlice](lost)),
		// Agents of an earlier version have their clusterset IPs only here; see lastKnownAddresses. A
		// lost aggregate also announces lost records, whose list may be read later.
		trigger.WatchWith(remote, &mcsv1beta1.ServiceImport{}, brokerKeys[*mcsv1beta1.ServiceImport], aggregates),
		trigger.WatchWith(local, &mcsv1beta1.ServiceImport{}, func(si *mcsv1beta1.ServiceImport) []types.NamespacedName {
			if _, onBroker := si.Labels[v1alpha1.LabelServiceNamespace]; onBroker {
				return nil
			}
			return trigger.Name(si)
		}, own[*mcsv1beta1.ServiceImport](writer)),
		trigger.WatchWith(local, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) []types.NamespacedName {
			if service, ok := objects.SourceService(s); ok {
				return []types.NamespacedName{service}
			}
			return keysFrom(objects.ImportedService)(s)
		}, own[*discoveryv1.EndpointSlice](writer)),
		trigger.WatchWith(local, &corev1.Service{}, func(svc *corev1.Service) []types.NamespacedName {
			if service, ok := objects.DerivedFrom(svc); ok {
				return []types.NamespacedName{service}
			}
			return trigger.Name(svc) // an exported Service may arrive after its slices
		}, own[*corev1.Service](writer)),
		trigger.Watch(local, &corev1.Namespace{}, a.servicesInNamespace),
		a.importPush.Source(), a.failedOver.Source(), deferred.Source(),
	)
}

// own leaves out events of what a reconciler wrote itself.
func own[T client.Object](w *apply.Writer) trigger.Hooks[T] {
	return trigger.Hooks[T]{Own: func(key types.NamespacedName, obj T, deleted bool) bool { return w.Own(key, obj, deleted) }}
}

// recordLost records the services of objects that the broker may have lost.
func recordLost[T client.Object](lost *imports.Lost) trigger.Hooks[T] {
	return trigger.Hooks[T]{Lost: func(obj T) {
		if service, ok := objects.ServiceOf(obj); ok {
			lost.Note(service)
		}
	}}
}

func (a *agent) addIdentity() error {
	stillMember := func(ctx context.Context) (bool, error) {
		secret := &corev1.Secret{}
		err := a.localDirect.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret)
		return err == nil && secret.DeletionTimestamp == nil && objects.RemovedAt(secret) == "", client.IgnoreNotFound(err)
	}
	keys := []types.NamespacedName{a.identityKey()}
	identity := &member.IdentityReconciler{
		Local: a.manager.GetClient(), Membership: a.membership, StillMember: stillMember, Ranges: a.clusterSetRanges,
		CheckUnreachable: a.checkUnreachable,
	}
	local := a.manager.GetCache()
	return a.addController("identity", identity, "identity", nil,
		trigger.Watch(local, &aboutv1beta1.ClusterProperty{}, func(*aboutv1beta1.ClusterProperty) []types.NamespacedName { return keys }),
		trigger.Watch(local, &claimsv1.ClusterClaim{}, func(*claimsv1.ClusterClaim) []types.NamespacedName { return keys }),
		a.identityPush.Source(),
	)
}

// identityKey is the key of all identity objects, which are reconciled together.
func (a *agent) identityKey() types.NamespacedName {
	return types.NamespacedName{Name: a.membership.ClusterID}
}

// clusterSetRanges returns the ranges of clusterset IPs, none until the broker has been reached.
func (a *agent) clusterSetRanges() []v1alpha1.CIDR {
	if set := a.state.ClusterSet(); set != nil {
		return set.Spec.ClusterSetIP.Ranges
	}
	return nil
}

func keysFrom[T client.Object](keyOf func(T) (types.NamespacedName, bool)) trigger.KeysOf[T] {
	return func(obj T) []types.NamespacedName {
		if key, ok := keyOf(obj); ok {
			return []types.NamespacedName{key}
		}
		return nil
	}
}

func brokerKeys[T client.Object](obj T) []types.NamespacedName {
	return keysFrom(func(o T) (types.NamespacedName, bool) { return objects.ServiceOf(o) })(obj)
}

// servicesInNamespace returns the services that the clusterset has in a namespace. They are
// imported when the namespace is created.
func (a *agent) servicesInNamespace(ns *corev1.Namespace) []types.NamespacedName {
	return a.recordedServices(context.Background(), index.RecordsOf(ns.Name))
}

// recordedServices returns the services that have records on the broker. Before the broker's cache
// has synced it returns none; each record triggers its own reconcile then.
func (a *agent) recordedServices(ctx context.Context, opts ...client.ListOption) []types.NamespacedName {
	return a.brokerServices(ctx, &v1alpha1.ExportRecordList{}, opts...)
}

// brokerServices returns the services that have objects of a kind on the broker.
func (a *agent) brokerServices(ctx context.Context, list client.ObjectList, opts ...client.ListOption) []types.NamespacedName {
	if !a.connected() {
		return nil
	}
	keys, err := keysIn(ctx, a.broker.GetClient(), objects.ServiceOf, list, opts...)
	if err != nil {
		a.Log.Error(err, "cannot list objects of the broker", "kind", fmt.Sprintf("%T", list))
	}
	return keys
}

// resyncAll enqueues every service that is exported or imported here or exists on the broker. It is
// called when something that affects all of them changed: the settings, or the connection to the
// broker. It also finds orphans of earlier runs, which no event points at.
func (a *agent) resyncAll(ctx context.Context) {
	a.updateBlocks()
	a.identityPush.Push(a.identityKey())
	named := func(o metav1.Object) (types.NamespacedName, bool) {
		return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, true
	}
	exported, err := keysIn(ctx, a.manager.GetClient(), named, &mcsv1beta1.ServiceExportList{})
	imported, err2 := keysIn(ctx, a.manager.GetClient(), named, &mcsv1beta1.ServiceImportList{},
		client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark})
	if err := errors.Join(err, err2); err != nil {
		a.Log.Error(err, "cannot list the exports and imports of this cluster")
	}
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: a.membership.ClusterID}
	records := a.recordedServices(ctx)
	a.exportPush.Push(exported...)
	a.exportPush.Push(records...)
	a.exportPush.Push(a.brokerServices(ctx, &discoveryv1.EndpointSliceList{}, own)...)
	a.importPush.Push(imported...)
	a.importPush.Push(records...)
	a.aggregatePush.Push(records...)
	a.aggregatePush.Push(a.brokerServices(ctx, &mcsv1beta1.ServiceImportList{})...)
	// Before the broker was reached, every service was recorded as waiting for it, also those that are
	// neither exported nor imported.
	a.exportPush.Push(a.metrics.Waiting.Services(exportReconciler)...)
	a.importPush.Push(a.metrics.Waiting.Services(importReconciler)...)
	a.aggregatePush.Push(a.metrics.Waiting.Services(aggregateReconciler)...)
}

// resyncServicesOf enqueues every service that a member exports.
func (a *agent) resyncServicesOf(clusterID string) {
	keys := a.recordedServices(context.Background(), client.MatchingLabels{mcsv1beta1.LabelSourceCluster: clusterID})
	a.exportPush.Push(keys...)
	a.importPush.Push(keys...)
	a.aggregatePush.Push(keys...)
}

// keysIn lists objects and returns the services that they belong to.
func keysIn(
	ctx context.Context, c client.Reader, keyOf func(metav1.Object) (types.NamespacedName, bool),
	list client.ObjectList, opts ...client.ListOption,
) ([]types.NamespacedName, error) {
	// Only names and labels are read, so what the cache holds need not be copied.
	if err := c.List(ctx, list, append(slices.Clone(opts), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	var keys []types.NamespacedName
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		o, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if key, ok := keyOf(o); ok {
			keys = append(keys, key)
		}
		return nil
	})
	return keys, err
}
