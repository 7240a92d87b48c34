package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// results are all measurements.
type results struct {
	size               sizes
	seamark, kubeProxy contenderResults
	direct             rate
}

type contenderResults struct {
	few, many loadFigures
	rate      rate
	rules     int64 // bytes of kernel memory
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

// add adds the rows of the report. Peers are kube-proxy and, for connections, the pod's own
// address.
func (m *results) add(r *report.Report) {
	n, few := count(m.size.many), count(m.size.few)
	o, t := &m.seamark, &m.kubeProxy
	// kube-proxy is slow only with many services.
	compared := m.size.many >= full.many
	faster := func(name string, seamark, kubeProxy, limit time.Duration, ratio float64) {
		line := report.Row{
			Name: name, Value: report.Milliseconds(seamark), Unit: "ms", Peers: []float64{report.Milliseconds(kubeProxy)}, Faster: true,
			Budget: fmt.Sprintf("≤ %.0f ms", report.Milliseconds(limit)), Over: seamark > limit,
		}
		if compared && ratio > 0 {
			line.Budget += fmt.Sprintf(", ≥ %.0f × faster", ratio)
			line.Over = line.Over || line.Ratio(0) < ratio
		}
		r.Add(line)
	}
	plain := func(name, unit string, values ...float64) {
		r.Add(report.Row{Name: name, Value: values[0], Unit: unit, Peers: values[1:]})
	}
	faster(fmt.Sprintf("full load, %s × %d", n, m.size.endpoints), o.many.full, t.many.full, time.Second, 10)
	plain("from process start to the first connection, "+n, "ms", report.Milliseconds(o.many.first), report.Milliseconds(t.many.first))
	const change = 20 * time.Millisecond
	faster("one change, sync, "+n, median(o.many.updates), median(t.many.updates), change, 100)
	faster("one change, sync, "+few, median(o.few.updates), median(t.few.updates), change, 0)
	growth := float64(median(o.many.updates)) / float64(max(median(o.few.updates), 1))
	r.Add(report.Row{
		Name: fmt.Sprintf("one change, sync, %s compared with %s", n, few), Value: growth, Unit: "×", Budget: "the same (< 2 ×)",
		Over: growth >= 2,
		Detail: fmt.Sprintf("kube-proxy: %.1f ×; both hold waits for the kernel's grace periods, which vary by more than the work itself",
			float64(median(t.many.updates))/float64(max(median(t.few.updates), 1))),
	})
	plain("one change on the API server → first connection, "+n, "ms", report.Milliseconds(median(o.many.noticed)),
		report.Milliseconds(median(t.many.noticed)))
	plain("kernel memory of the rules, "+n, "MiB", mebibytes(o.rules), mebibytes(t.rules))
	plain("resident memory of the process, "+n, "MiB", mebibytes(o.many.resident), mebibytes(t.many.resident))
	rate := report.Row{
		Name: "new connections/s, " + n, Value: o.rate.perSecond(), Unit: "/s", Peers: []float64{t.rate.perSecond(), m.direct.perSecond()},
		Budget: "≥ 0.9 × direct",
		Detail: fmt.Sprintf("rounds: %.0f; kube-proxy %.0f; direct %.0f", o.rate.rounds, t.rate.rounds, m.direct.rounds),
	}
	rate.Over = rate.Ratio(1) < 0.9
	if compared {
		rate.Budget += ", ≥ kube-proxy"
		rate.Over = rate.Over || rate.Ratio(0) < 1
	}
	r.Add(rate)
	for _, p := range []int{50, 99} {
		plain(fmt.Sprintf("connect latency p%d, %s", p, n), "µs", micros(&o.rate, p), micros(&t.rate, p), micros(&m.direct, p))
	}
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

func micros(r *rate, p int) float64 { return float64(r.percentile(p).Microseconds()) }

// count formats 10000 as 10,000.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
