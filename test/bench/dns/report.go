package main

import (
	"fmt"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// compare adds the rows of the measurements with n services.
func compare(r *report.Report, n int, found map[string]*figures) {
	seamark, constant, inTree := found["seamark"], found["constant"], found["in-tree"]
	add := func(name, unit string, value func(*figures) float64, budget string, over func(seamark, constant, inTree float64) bool) {
		line := report.Row{Name: fmt.Sprintf("%s, %d services", name, n), Unit: unit, Value: value(seamark),
			Peers: []float64{value(constant), value(inTree)}, Budget: budget}
		line.Over = over != nil && over(line.Value, line.Peers[0], line.Peers[1])
		r.Add(line)
	}
	add("answers per second", "/s", func(f *figures) float64 { return median(f.rates) }, "≥ 0.95 × constant",
		func(o, c, _ float64) bool { return o < 0.95*c })
	add("CPU per query", "µs", func(f *figures) float64 { return median(f.cpus) }, "≤ 1.1 × constant",
		func(o, c, _ float64) bool { return o > 1.1*c })
	add("answers per second, headless of 1,000 endpoints", "/s", func(f *figures) float64 { return median(f.bigRates) }, "", nil)
	add("CPU per query, headless of 1,000 endpoints", "µs", func(f *figures) float64 { return median(f.bigCPUs) }, "", nil)
	add(fmt.Sprintf("latency at %d/s, p50", latencyRate), "ms", func(f *figures) float64 { return report.Milliseconds(f.p50) }, "", nil)
	add(fmt.Sprintf("latency at %d/s, p99", latencyRate), "ms", func(f *figures) float64 { return report.Milliseconds(f.p99) }, "", nil)
	add("memory after load, without the program", "MiB", func(f *figures) float64 { return mebibytes(f.resident) }, "≤ in-tree",
		func(o, _, t float64) bool { return o > t })
	budget := ""
	if n == 1000 {
		budget = "≤ 1300 ms"
	}
	add("start until all names are answered", "ms", func(f *figures) float64 { return report.Milliseconds(f.answerable) }, budget,
		func(o, _, _ float64) bool { return n == 1000 && o > 1300 })
	add("names denied while starting", "", func(f *figures) float64 { return float64(f.denied) }, "0",
		func(o, _, _ float64) bool { return o > 0 })
	add("change until answered, p50", "ms", func(f *figures) float64 { return report.Milliseconds(report.Percentile(f.changes, 0.5)) }, "",
		nil)
	add("change until answered, p99", "ms", func(f *figures) float64 { return report.Milliseconds(report.Percentile(f.changes, 0.99)) },
		"", nil)
}
