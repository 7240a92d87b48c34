package agent

import (
	"context"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/objects"
)

// The two API servers an agent writes to.
const (
	serverLocal  = "local"
	serverBroker = "broker"
)

// countWrites returns a function that counts writes to a server and records those that clients of a
// service wait for. Clients wait for writes to the broker and for imports, but not for what an
// exporter writes to its own cluster.
func (a *agent) countWrites(server string, reconciler *telemetry.InstrumentedReconciler) func(types.NamespacedName, string, client.Object) {
	clientsWait := server == serverBroker || reconciler.Hop == "import"
	return func(key types.NamespacedName, verb string, obj client.Object) {
		a.metrics.Writes.WithLabelValues(server, verb, reflect.TypeOf(obj).Elem().Name()).Inc()
		if clientsWait && verb != apply.VerbStatus {
			reconciler.RecordWrite(key)
		}
	}
}

func (a *agent) observeExport(key types.NamespacedName, export *mcsv1beta1.ServiceExport) {
	if export == nil {
		a.metrics.Exports.Set(key, "")
		a.metrics.Conflicts.Set(key, "")
		return
	}
	is := func(t mcsv1beta1.ServiceExportConditionType) bool {
		return meta.IsStatusConditionTrue(export.Status.Conditions, string(t))
	}
	state := "ready"
	switch {
	case !is(mcsv1beta1.ServiceExportConditionValid):
		state = "invalid"
	case !is(mcsv1beta1.ServiceExportConditionReady):
		state = "pending"
	}
	a.metrics.Exports.Set(key, state)
	conflict := ""
	if is(mcsv1beta1.ServiceExportConditionConflict) {
		conflict = "conflict"
	}
	a.metrics.Conflicts.Set(key, conflict)
}

func (a *agent) observeImport(key types.NamespacedName, si *mcsv1beta1.ServiceImport) {
	state := ""
	if si != nil {
		state = "not_ready"
		if meta.IsStatusConditionTrue(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)) {
			state = "ready"
		}
	}
	a.metrics.Imports.Set(key, state)
}

// addMetrics adds the metrics that are read at each scrape, and registers all of them.
func (a *agent) addMetrics(context.Context) error {
	oneIf := func(ok bool) float64 {
		if ok {
			return 1
		}
		return 0
	}
	a.metrics.Add("seamark_broker_connected", "Whether this member observes its own lease renewals through the broker.", nil,
		func() float64 { return oneIf(a.state.Connected() && a.state.Liveness.BrokerWatchIsLive()) })
	a.metrics.Add("seamark_credential_lifetime_used",
		"How much of the lifetime of the token for the broker is over. It is renewed at 0.2, and invalid at 1; 0 on a replica that does not lead.",
		nil, func() float64 { return oneIf(a.leads()) * a.credential.LifetimeUsed() })
	a.metrics.Add("seamark_stale_clusters", "Members whose lease expired.", nil,
		func() float64 { return float64(len(a.state.Liveness.Stale())) })
	a.metrics.Add("seamark_cluster_duplicated", "Whether a copy of this cluster runs with the same id.", nil,
		func() float64 { return oneIf(a.heartbeat.HasCopy()) })
	for side, held := range map[string]func() int{
		"export": a.withdrawals.Held, "import": func() int { return len(a.heldImports.Held()) },
	} {
		a.metrics.Add("seamark_withdrawals_held", "Services whose withdrawal is held, because nothing shows that it is meant.",
			prometheus.Labels{"side": side}, func() float64 { return float64(held()) })
	}
	for kind, list := range map[string]func() client.ObjectList{
		"ExportRecord":  func() client.ObjectList { return &v1alpha1.ExportRecordList{} },
		"EndpointSlice": func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
		"ServiceImport": func() client.ObjectList { return &mcsv1beta1.ServiceImportList{} },
	} {
		a.metrics.Add("seamark_broker_objects", "Objects of the broker that this agent holds: those of services in namespaces that exist here.",
			prometheus.Labels{"kind": kind}, func() float64 { return float64(len(a.brokerServices(context.Background(), list()))) })
	}
	a.metrics.AddCollector(&clusterSetCollector{agent: a})
	return a.metrics.Register(ctrlmetrics.Registry)
}

// clusterSetCollector collects metrics that exist once per member or per block of clusterset IPs.
type clusterSetCollector struct{ agent *agent }

var (
	leaseAge = prometheus.NewDesc("seamark_lease_age_seconds",
		"How old the last renewal of a member's lease was when the lease was last read.", []string{"cluster"}, nil)
	isReachable = prometheus.NewDesc("seamark_reachable",
		"Whether a cluster is reached from this one: 1 if it is, 0 if it is not, -1 if that is not known because none of its beacons has answered.",
		[]string{"cluster", "family"}, nil)
	poolUsed = prometheus.NewDesc("seamark_clusterset_ip_pool_used",
		"Addresses in use of this member's block of clusterset IPs.", []string{"block"}, nil)
	poolSize = prometheus.NewDesc("seamark_clusterset_ip_pool_size",
		"Addresses of this member's block of clusterset IPs.", []string{"block"}, nil)
)

var reachValues = map[objects.ReachState]float64{objects.Reachable: 1, objects.Unreachable: 0, objects.ReachabilityUnknown: -1}

func (c *clusterSetCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaseAge, isReachable, poolUsed, poolSize} {
		out <- d
	}
}

func (c *clusterSetCollector) Collect(out chan<- prometheus.Metric) {
	for cluster, age := range c.agent.state.Liveness.LeaseAges(time.Now()) {
		out <- prometheus.MustNewConstMetric(leaseAge, prometheus.GaugeValue, age.Seconds(), cluster)
	}
	for _, r := range c.agent.prober.Snapshot() {
		out <- prometheus.MustNewConstMetric(isReachable, prometheus.GaugeValue, reachValues[r.State], r.Cluster, string(r.Family))
	}
	for _, use := range c.agent.pool.Usage() {
		out <- prometheus.MustNewConstMetric(poolUsed, prometheus.GaugeValue, float64(use.Used), use.Block.String())
		out <- prometheus.MustNewConstMetric(poolSize, prometheus.GaugeValue, float64(use.Size), use.Block.String())
	}
}
