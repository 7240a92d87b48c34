// Package telemetry holds the agent's metrics. All names begin with seamark_. Label values are
// bounded: clusters, blocks and kinds, never services or addresses.
package telemetry

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/daemon/version"
)

// Metrics are the agent's metrics.
type Metrics struct {
	// Propagation is the time from when this agent observed a change until it had written what follows
	// from it, by hop: publish (this cluster to the broker), aggregate (on the broker), import (the
	// broker, or this cluster itself, to the imports here).
	Propagation *prometheus.HistogramVec
	// Writes counts writes by server (local, broker), verb and kind.
	Writes *prometheus.CounterVec
	// Errors counts reconciles that failed and are retried.
	Errors *prometheus.CounterVec
	// Waits counts reconciles that decided not to write yet, by reconciler and reason.
	Waits *prometheus.CounterVec
	// ProbeLatency is the time from a probe to the answer of a beacon, by cluster.
	ProbeLatency *prometheus.HistogramVec
	// Failovers counts the clusters whose endpoints this one stopped using, by cause.
	Failovers *prometheus.CounterVec
	// Waiting holds the services that wait now.
	Waiting WaitList
	// Exports and Imports count services by state.
	Exports, Imports *Tally
	// Conflicts counts this cluster's exports whose service has a conflict.
	Conflicts *Tally

	collectors, registered []prometheus.Collector
}

// propagationBuckets reach from the latency of an idle API server to a minute.
var propagationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// latencyBuckets reach from a network of one rack to what the probing of beacons tolerates.
var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// New returns metrics. They are not exposed before Register.
func New() *Metrics {
	m := &Metrics{
		Propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seamark_propagation_seconds", Buckets: propagationBuckets,
			Help: "Time from when the agent observed a change until it had written what follows from it, by hop: publish, aggregate, import.",
		}, []string{"hop"}),
		Writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seamark_api_writes_total", Help: "Writes of the agent, by API server, verb and kind.",
		}, []string{"server", "verb", "kind"}),
		Errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seamark_reconcile_errors_total", Help: "Reconciles that failed and are retried.",
		}, []string{"reconciler"}),
		Waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seamark_reconcile_waits_total", Help: "Reconciles that decided not to write yet, by reconciler and reason.",
		}, []string{"reconciler", "reason"}),
		ProbeLatency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seamark_probe_latency_seconds", Help: "Time from a probe to the answer of a beacon of another cluster.", Buckets: latencyBuckets,
		}, []string{"cluster"}),
		Failovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seamark_failovers_total",
			Help: "Clusters whose endpoints this one stopped using where others serve, by cause: unreachable (beacons and endpoints) or lease.",
		}, []string{"cause"}),
		Exports:   newTally("seamark_exports", "ServiceExports of this cluster by state.", "ready", "pending", "invalid"),
		Imports:   newTally("seamark_imports", "ServiceImports of this cluster by state.", "ready", "not_ready"),
		Conflicts: newTally("seamark_export_conflicts", "ServiceExports of this cluster whose service has a conflict.", "conflict"),
	}
	for _, hop := range []string{"publish", "aggregate", "import"} {
		m.Propagation.WithLabelValues(hop) // exposed from the start, at zero
	}
	for _, cause := range []string{"unreachable", "lease"} {
		m.Failovers.WithLabelValues(cause)
	}
	m.collectors = []prometheus.Collector{
		m.Propagation, m.Writes, m.Errors, m.Waits, m.ProbeLatency, m.Failovers, m.Exports.gauge, m.Imports.gauge, m.Conflicts.gauge, buildInfo(),
	}
	m.addRemoved(0)
	return m
}

// NewResting returns the metrics of an agent whose cluster was removed from its clusterset.
func NewResting() *Metrics { return newIdle(1) }

// NewWaiting returns the metrics of an agent whose cluster is no member, or not yet.
func NewWaiting() *Metrics { return newIdle(0) }

func newIdle(removed float64) *Metrics {
	m := &Metrics{collectors: []prometheus.Collector{buildInfo()}}
	m.addRemoved(removed)
	return m
}

func (m *Metrics) addRemoved(value float64) {
	m.Add("seamark_removed", "Whether this cluster was removed from its clusterset.", nil, func() float64 { return value })
}

func buildInfo() prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "seamark_build_info", Help: "Version of the agent; always 1.",
	}, []string{"version"})
	info.WithLabelValues(version.String()).Set(1)
	return info
}

// Add adds a gauge whose value is read at each scrape.
func (m *Metrics) Add(name, help string, labels prometheus.Labels, read func() float64) {
	m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read))
}

// AddCollector adds a collector.
func (m *Metrics) AddCollector(c prometheus.Collector) { m.collectors = append(m.collectors, c) }

// Register exposes the metrics. In a process with several agents, as in tests, only those of the
// first are exposed.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	for _, c := range m.collectors {
		var already prometheus.AlreadyRegisteredError
		err := registry.Register(c)
		switch {
		case err == nil:
			m.registered = append(m.registered, c)
		case !errors.As(err, &already):
			return err
		}
	}
	return nil
}

// Unregister undoes Register.
func (m *Metrics) Unregister(registry prometheus.Registerer) {
	for _, c := range m.registered {
		registry.Unregister(c)
	}
}

// Tally counts services by state without iterating over them.
type Tally struct {
	gauge *prometheus.GaugeVec

	mu    sync.Mutex
	state map[types.NamespacedName]string
}

func newTally(name, help string, states ...string) *Tally {
	t := &Tally{
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"state"}),
		state: map[types.NamespacedName]string{},
	}
	for _, s := range states {
		t.gauge.WithLabelValues(s)
	}
	return t
}

// Set sets the state of a service; "" removes it.
func (t *Tally) Set(service types.NamespacedName, state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.state[service]
	if old == state {
		return
	}
	if old != "" {
		t.gauge.WithLabelValues(old).Dec()
	}
	if state == "" {
		delete(t.state, service)
		return
	}
	t.state[service] = state
	t.gauge.WithLabelValues(state).Inc()
}
