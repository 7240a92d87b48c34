package dns

import (
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seamark-dev/seamark/internal/dns/zone"
)

const namespace = "seamark_dns"

var (
	queries = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "queries_total", Help: "Queries answered, by type (rare types share \"other\") and response code.",
	}, []string{"type", "rcode"})
	answerLatency = promauto.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "answer_duration_seconds",
		Help:    "Time from a query's arrival at the plugin until its answer was handed to the network.",
		Buckets: prometheus.ExponentialBuckets(5e-6, 4, 9),
	})
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

// counters are the counters of queries, looked up once: finding a counter by its labels takes
// longer than answering a query.
var counters = func() (c [len(countedTypes) + 1][len(countedRcodes)]prometheus.Counter) {
	for t := range c {
		name := "other"
		if t < len(countedTypes) {
			name = dns.TypeToString[countedTypes[t]]
		}
		for r := range c[t] {
			c[t][r] = queries.WithLabelValues(name, dns.RcodeToString[countedRcodes[r]])
		}
	}
	return c
}()

// countQuery counts a query and records how long it took. A response code without a label of its
// own counts as a failure.
func countQuery(qtype uint16, rcode int, since time.Time) {
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
	counters[t][r].Inc()
	answerLatency.Observe(time.Since(since).Seconds())
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
