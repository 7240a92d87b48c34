package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"k8s.io/client-go/util/workqueue"
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
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Retries of a failed reconcile: quick at first, then rare enough not to burden a server in trouble.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 15 * time.Second
)

func staticMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil }

func (a *agent) addReconcilers(context.Context) error {
	return errors.Join(a.addExport(), a.addAggregate(), a.addImport(), a.addIdentity())
}

// add adds a reconciler whose writers are timed: from when a service came into its queue until they have written for it.
func (a *agent) add(name string, r reconcile.Reconciler, hop string, writers map[string]*apply.Writer, sources ...source.Source) error {
	timed := &telemetry.InstrumentedReconciler{Reconciler: r, Name: name, Hop: hop, Metrics: a.metrics}
	for server, w := range writers {
		w.Wrote = a.counted(server, timed)
	}
	a.metrics.Add("seamark_queue_depth", "Services that wait for a reconciler.", prometheus.Labels{"reconciler": name}, timed.Depth)
	c, err := controller.New(name, a.manager, controller.Options{
		Reconciler:  timed,
		NewQueue:    timed.NewQueue,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		LogConstructor: func(request *reconcile.Request) logr.Logger {
			log := a.Log.WithName(name)
			if request == nil {
				return log.V(1) // how the library starts its parts, a line for each
			}
			if request.Namespace == "" {
				return log // not about a service: the identity is the cluster's
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
	later := trigger.NewDeferred(&a.rush)
	return a.add("export", &exports.Reconciler{
		Local: a.manager.GetClient(), Broker: a.broker.GetClient(), LocalWriter: a.localWriter, BrokerWriter: a.brokerWriter,
		Settings: a.exportSettings, Taken: a.heartbeat.Taken, RegionOf: a.nodes.RegionOf, Recorder: a.manager.GetEventRecorder("seamark-agent"),
		Deferred: later, ShortageOf: a.hunger.get, Observed: a.observeExport,
	}, "publish", map[string]*apply.Writer{serverLocal: a.localWriter, serverBroker: a.brokerWriter},
		trigger.Watch(local, &mcsv1beta1.ServiceExport{}, trigger.Name),
		trigger.Watch(local, &corev1.Service{}, trigger.Name),
		trigger.Watch(local, &discoveryv1.EndpointSlice{}, keyOf(objects.SourceService)),
		trigger.Watch(remote, &v1alpha1.ExportRecord{}, ofBroker[*v1alpha1.ExportRecord]),
		trigger.Watch(remote, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) []types.NamespacedName {
			if s.Labels[mcsv1beta1.LabelSourceCluster] != a.membership.ClusterID {
				return nil // others' endpoints do not change what we publish
			}
			return ofBroker(s)
		}),
		a.exports.Source(), later.Source(),
	)
}

func (a *agent) addAggregate() error {
	remote := a.broker.GetCache()
	later := trigger.NewDeferred(&a.rush)
	writer := apply.NewWriter(a.broker.GetClient()) // apart from the exporter's: one reconciler never waits for another's echoes
	return a.add("aggregate", &aggregate.Reconciler{
		ClusterID: a.membership.ClusterID, BrokerNamespace: a.membership.Namespace,
		Broker: a.broker.GetClient(), Writer: writer, Stale: a.state.Liveness.Stale, Taken: a.heartbeat.Taken,
		Connected: func() bool { return a.state.Connected() && a.addressesKnown() },
		Pool:      a.pool, Remembered: a.remembered, SetShortage: a.hunger.set, Deferred: later,
	}, "aggregate", map[string]*apply.Writer{serverBroker: writer},
		trigger.Watch(remote, &v1alpha1.ExportRecord{}, ofBroker[*v1alpha1.ExportRecord]),
		trigger.Watch(remote, &mcsv1beta1.ServiceImport{}, ofBroker[*mcsv1beta1.ServiceImport]),
		a.aggregate.Source(), later.Source(),
	)
}

func (a *agent) addImport() error {
	local, remote := a.manager.GetCache(), a.broker.GetCache()
	lost, later := imports.NewLost(), trigger.NewDeferred(&a.rush)
	writer := apply.NewWriter(a.manager.GetClient())
	return a.add("import", &imports.Reconciler{
		Local: a.manager.GetClient(), Broker: a.broker.GetClient(), BrokerNamespace: a.membership.Namespace, Writer: writer,
		Settings: a.importSettings, Taken: a.heartbeat.Taken, Stale: a.state.Liveness.Stale, IsNodeAddress: a.nodes.IsAddress, IsNode: a.nodes.IsNode, RegionOf: a.nodes.RegionOf,
		CreateNamespaces: a.CreateNamespaces, Recorder: a.manager.GetEventRecorder("seamark-agent"), Lost: lost, Deferred: later,
		Observed: a.observeImport,
	}, "import", map[string]*apply.Writer{serverLocal: writer},
		trigger.WatchLost(remote, &v1alpha1.ExportRecord{}, ofBroker[*v1alpha1.ExportRecord], noteLost[*v1alpha1.ExportRecord](lost)),
		trigger.WatchLost(remote, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) []types.NamespacedName {
			if s.Labels[mcsv1beta1.LabelSourceCluster] == a.membership.ClusterID {
				return nil // our own endpoints come from our own slices
			}
			return ofBroker(s)
		}, noteLost[*discoveryv1.EndpointSlice](lost)),
		trigger.WatchLost(remote, &mcsv1beta1.ServiceImport{}, ofBroker[*mcsv1beta1.ServiceImport], noteLost[*mcsv1beta1.ServiceImport](lost)),
		trigger.Watch(local, &mcsv1beta1.ServiceImport{}, func(si *mcsv1beta1.ServiceImport) []types.NamespacedName {
			if _, onBroker := si.Labels[v1alpha1.LabelServiceNamespace]; onBroker {
				return nil
			}
			return trigger.Name(si)
		}),
		trigger.Watch(local, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) []types.NamespacedName {
			if service, ok := objects.SourceService(s); ok {
				return []types.NamespacedName{service}
			}
			return keyOf(objects.ImportedService)(s)
		}),
		trigger.Watch(local, &corev1.Service{}, keyOf(objects.DerivedFrom)),
		trigger.Watch(local, &corev1.Namespace{}, a.servicesOf),
		a.importsPush.Source(), later.Source(),
	)
}

// noteLost remembers the services of objects that the broker may have lost.
func noteLost[T client.Object](lost *imports.Lost) func(T) {
	return func(obj T) {
		if service, ok := objects.ServiceOf(obj); ok {
			lost.Note(service)
		}
	}
}

func (a *agent) addIdentity() error {
	one := types.NamespacedName{Name: a.membership.ClusterID}
	stillMember := func(ctx context.Context) (bool, error) {
		secret := &corev1.Secret{}
		err := a.localDirect.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret)
		return err == nil && secret.DeletionTimestamp == nil, client.IgnoreNotFound(err)
	}
	all := func() []types.NamespacedName { return []types.NamespacedName{one} }
	return a.add("identity", &member.IdentityReconciler{Local: a.manager.GetClient(), Membership: a.membership, StillMember: stillMember},
		"identity", nil,
		trigger.Watch(a.manager.GetCache(), &aboutv1beta1.ClusterProperty{}, func(*aboutv1beta1.ClusterProperty) []types.NamespacedName { return all() }),
		trigger.Watch(a.manager.GetCache(), &claimsv1.ClusterClaim{}, func(*claimsv1.ClusterClaim) []types.NamespacedName { return all() }),
	)
}

func keyOf[T client.Object](of func(T) (types.NamespacedName, bool)) trigger.KeysOf[T] {
	return func(obj T) []types.NamespacedName {
		if key, ok := of(obj); ok {
			return []types.NamespacedName{key}
		}
		return nil
	}
}

func ofBroker[T client.Object](obj T) []types.NamespacedName {
	return keyOf(func(o T) (types.NamespacedName, bool) { return objects.ServiceOf(o) })(obj)
}

// servicesOf are the services the clusterset has in a namespace: they appear with it.
func (a *agent) servicesOf(ns *corev1.Namespace) []types.NamespacedName {
	return a.records(context.Background(), client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns.Name})
}

// records lists the services that have records on the broker. Before those are known there are none, and each will come by
// itself.
func (a *agent) records(ctx context.Context, opts ...client.ListOption) []types.NamespacedName {
	return a.onBroker(ctx, &v1alpha1.ExportRecordList{}, opts...)
}

// onBroker lists the services that the broker has objects of a kind for.
func (a *agent) onBroker(ctx context.Context, list client.ObjectList, opts ...client.ListOption) []types.NamespacedName {
	if !a.state.Connected() {
		return nil
	}
	keys, err := keysIn(ctx, a.broker.GetClient(), objects.ServiceOf, list, opts...)
	if err != nil {
		a.Log.Error(err, "cannot list what the broker has", "kind", fmt.Sprintf("%T", list))
	}
	return keys
}

// lookAgain makes the reconcilers look at every service there is: exported or imported here, or on the broker. It is needed
// when what decides about all of them changed: the settings, or that the broker has been reached at all. What is left over
// from before is found this way too, since nothing else points at it.
func (a *agent) lookAgain(ctx context.Context) {
	a.takeBlocks()
	named := func(o metav1.Object) (types.NamespacedName, bool) {
		return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, true
	}
	exported, err := keysIn(ctx, a.manager.GetClient(), named, &mcsv1beta1.ServiceExportList{})
	imported, err2 := keysIn(ctx, a.manager.GetClient(), named, &mcsv1beta1.ServiceImportList{},
		client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark})
	if err := errors.Join(err, err2); err != nil {
		a.Log.Error(err, "cannot list what is exported and imported here")
	}
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: a.membership.ClusterID}
	records := a.records(ctx)
	a.exports.Push(exported...)
	a.exports.Push(records...)
	a.exports.Push(a.onBroker(ctx, &discoveryv1.EndpointSliceList{}, own)...)
	a.importsPush.Push(imported...)
	a.importsPush.Push(records...)
	a.aggregate.Push(records...)
	a.aggregate.Push(a.onBroker(ctx, &mcsv1beta1.ServiceImportList{})...)
}

// keysIn lists objects and returns the services they belong to.
func keysIn(ctx context.Context, c client.Reader, of func(metav1.Object) (types.NamespacedName, bool), list client.ObjectList, opts ...client.ListOption) ([]types.NamespacedName, error) {
	if err := c.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	var keys []types.NamespacedName
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		o, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if key, ok := of(o); ok {
			keys = append(keys, key)
		}
		return nil
	})
	return keys, err
}
