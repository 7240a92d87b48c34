package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

var (
	metricElements = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "seamark_proxy_programmed_elements",
		Help: "Elements in the sets and maps of the data plane on this node, both address families together.",
	}, []string{"set"})
	metricDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "seamark_proxy_sync_duration_seconds",
		Help:    "Time of a sync with the kernel: full compares the whole table, incremental only changed services.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
	}, []string{"kind"})
	metricLastSync = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "seamark_proxy_last_sync_timestamp_seconds",
		Help: "When the kernel was last in sync with the objects of the cluster.",
	})
	metricErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seamark_proxy_sync_errors_total",
		Help: "Failed transactions; each is followed by a full sync.",
	})
	metricChanged = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seamark_proxy_changed_elements_total",
		Help: "Elements sent to the kernel.",
	}, []string{"operation"})
	metricRefused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "seamark_proxy_refused_inputs",
		Help: "Addresses, ports and endpoints of imported services that cannot be used; the log names them.",
	})
	metricDeletedFlows = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seamark_proxy_deleted_flows_total",
		Help: "Tracked connections that were deleted: UDP, or never answered, to an endpoint that no longer serves; or from before the rules.",
	})
	metricFlowErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seamark_proxy_flow_errors_total",
		Help: "Failed attempts to delete stale tracked connections. The rules are right; each attempt is repeated.",
	})
	metricReplaced = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seamark_proxy_replaced_tables_total",
		Help: "How often the whole table was replaced: it did not exist, or another program changed its rules.",
	})
)

func init() {
	metrics.Registry.MustRegister(metricElements, metricDuration, metricLastSync, metricErrors, metricChanged, metricRefused,
		metricDeletedFlows, metricFlowErrors, metricReplaced)
}

var kindNames = map[ruleset.Kind]string{
	ruleset.VIPs: "vips", ruleset.Services: "services", ruleset.Endpoints: "endpoints", ruleset.Slots: "slots",
	ruleset.Members: "members", ruleset.Hairpin: "hairpin", ruleset.Silent: "silent",
}

func observe(s *Syncer, o Outcome, seconds float64) {
	kind := "incremental"
	if o.Full {
		kind = "full"
	}
	metricDuration.WithLabelValues(kind).Observe(seconds)
	metricChanged.WithLabelValues("add").Add(float64(o.Added))
	metricChanged.WithLabelValues("delete").Add(float64(o.Deleted))
	metricDeletedFlows.Add(float64(o.DeletedFlows))
	if o.FlowsError != nil {
		metricFlowErrors.Inc()
	}
	if o.Replaced != "" {
		metricReplaced.Inc()
	}
	for kind, name := range kindNames {
		metricElements.WithLabelValues(name).Set(float64(s.Elements(kind)))
	}
	metricRefused.Set(float64(s.RefusedCount()))
}
