package dns

import (
	"context"
	"sync"
	"time"

	"github.com/coredns/coredns/plugin/metrics"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seamark-dev/seamark/internal/dns/zone"
)

const namespace = "seamark_dns"

var (
	queries = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "queries_total", Help: "Queries answered, by server, type (rare types share \"other\") and response code.",
	}, []string{"server", "type", "rcode"})
	answerLatency = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "answer_duration_seconds",
		Help:    "Time from a query's arrival at the plugin until its answer was handed to the network.",
		Buckets: prometheus.ExponentialBuckets(5e-6, 4, 9),
	}, []string{"server"})
	changeLatency = promauto.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "change_to_answer_seconds", Help: "Time from the arrival of a watch event until answers reflect it.",
		Buckets: prometheus.ExponentialBuckets(5e-6, 4, 11),
	})
	services = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "services", Help: "Services with names in the zone, by kind.",
	}, []string{"kind"})
	endpoints = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "endpoints", Help: "Addresses in the answers of services, by kind.",
	}, []string{"kind"})
	connected = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "api_connected",
		Help: "1 while the API server can be watched, 0 while answers come from the objects read last.",
	})
	synced = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "synced", Help: "1 once all objects have been read from the API server; before that every query fails.",
	})
)

// The types and response codes that have labels of their own. Clients choose the type of a query,
// so all other types share one label.
var (
	countedTypes  = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeTXT, dns.TypeSOA, dns.TypeNS}
	countedRcodes = [...]int{dns.RcodeSuccess, dns.RcodeNameError, dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented}
)

// queryMetrics are the metrics of one server's queries, looked up once: finding a counter by its
// labels takes longer than answering a query.
type queryMetrics struct {
	counters [len(countedTypes) + 1][len(countedRcodes)]prometheus.Counter
	latency  prometheus.Observer
}

// serverMetrics are the queryMetrics by the address of the server, as CoreDNS names it.
var serverMetrics sync.Map

func metricsOf(ctx context.Context) *queryMetrics {
	server := metrics.WithServer(ctx)
	if m, found := serverMetrics.Load(server); found {
		return m.(*queryMetrics)
	}
	m := &queryMetrics{latency: answerLatency.WithLabelValues(server)}
	for t := range m.counters {
		name := "other"
		if t < len(countedTypes) {
			name = dns.TypeToString[countedTypes[t]]
		}
		for r := range m.counters[t] {
			m.counters[t][r] = queries.WithLabelValues(server, name, dns.RcodeToString[countedRcodes[r]])
		}
	}
	actual, _ := serverMetrics.LoadOrStore(server, m)
	return actual.(*queryMetrics)
}

// countQuery counts a query and records how long it took. A response code without a label of its
// own counts as a failure.
func countQuery(ctx context.Context, qtype uint16, rcode int, since time.Time) {
	t := len(countedTypes)
	for i, known := range countedTypes {
		if known == qtype {
			t = i
			break
		}
	}
	r := 2
	for i, known := range countedRcodes {
		if known == rcode {
			r = i
			break
		}
	}
	m := metricsOf(ctx)
	m.counters[t][r].Inc()
	m.latency.Observe(time.Since(since).Seconds())
}

func setZoneGauges(z *zone.Zone) {
	for kind, count := range z.Counts() {
		services.WithLabelValues(kind.String()).Set(float64(count.Services))
		endpoints.WithLabelValues(kind.String()).Set(float64(count.Endpoints))
	}
}

func setGauge(g prometheus.Gauge, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}
