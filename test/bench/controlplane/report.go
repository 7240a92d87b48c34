package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/bench/usage"
)

// addTimes adds rows for the median, with its budget, and the 99th percentile. A budget of zero
// means none.
func addTimes(r *report.Report, name string, agents, bare []time.Duration, budget float64) {
	for _, p := range []struct {
		name   string
		part   float64
		budget float64
	}{{"p50", 0.5, budget}, {"p99", 0.99, 0}} {
		took, ofBare := report.Percentile(agents, p.part), report.Percentile(bare, p.part)
		addRatio(r, name+", "+p.name, took, ofBare, time.Millisecond, "ms", p.budget)
	}
}

// addTotal adds a row for a total time.
func addTotal(r *report.Report, name string, took, bare time.Duration, budget float64, detail string) {
	addRatio(r, name, took, bare, time.Second, "s", budget)
	r.Rows[len(r.Rows)-1].Detail = detail
}

// addRatio adds a row for a time of the agents and that of the bare chain, in a unit.
func addRatio(r *report.Report, name string, took, bare, in time.Duration, unit string, budget float64) {
	row := report.Row{Name: name, Unit: unit, Value: float64(took) / float64(in), Peers: []float64{float64(bare) / float64(in)}}
	if budget > 0 {
		row.Budget, row.Over = fmt.Sprintf("≤ %g ×", budget), row.Ratio(0) > budget
	}
	r.Add(row)
}

// addRequests adds a row for the requests per export or unexport. A budget of 0 is none. A single
// request of a burst, such as a list after a watch ended, is not counted against the budget: one
// decimal decides.
func addRequests(r *report.Report, what string, n, budget int, c counts) {
	perService := func(requests int64) float64 { return math.Round(10*float64(requests)/float64(n)) / 10 }
	ofServers := c.ofServers()
	each := perService(c.total() - ofServers)
	row := report.Row{Name: fmt.Sprintf("API requests per %s, %d at once", what, n), Value: each, Detail: c.describe(n)}
	if budget > 0 {
		row.Budget, row.Over = fmt.Sprintf("≤ %d", budget), each > float64(budget)
	}
	r.Add(row)
	if ofServers > 0 {
		r.Add(report.Row{
			Name:  fmt.Sprintf("besides: writes of IPAddresses by API servers per %s, %d at once", what, n),
			Value: perService(ofServers),
		})
	}
}

func addPodChange(r *report.Report, n int, c counts) {
	row := report.Row{
		Name: "slices written per importer for a pod change in 1,000 endpoints", Value: float64(c.on("importer")) / float64(n),
		Budget: "1, nothing else", Detail: c.describe(n),
	}
	for server := range c {
		row.Over = row.Over || c.on(server) != int64(n) || c[server][request{"PUT", "endpointslices"}] < int64(n)
	}
	r.Add(row)
}

// addExpectedZero adds a row for requests of which none are expected.
func addExpectedZero(r *report.Report, name string, c counts) {
	r.Add(report.Row{Name: name, Value: float64(c.total()), Budget: "0", Over: c.total() != 0, Detail: c.describe(1)})
}

func addUsage(r *report.Report, n, budgetMiB int, before, after map[string]usage.Usage) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		r.Add(report.Row{
			Name:  fmt.Sprintf("CPU of the %s's agent for %d exports", name, n),
			Value: (after[name].CPU - before[name].CPU).Seconds(), Unit: "s",
		})
	}
	addMemory(r, fmt.Sprintf("at %d exports", n), budgetMiB, after)
}

func addMemory(r *report.Report, when string, budgetMiB int, now map[string]usage.Usage) {
	const mib = 1 << 20
	for _, name := range slices.Sorted(maps.Keys(now)) {
		u := now[name]
		resident := float64(u.Resident) / mib
		r.Add(report.Row{
			Name: fmt.Sprintf("resident memory of the %s's agent %s", name, when), Value: resident, Unit: "MiB",
			Budget: fmt.Sprintf("≤ %d MiB", budgetMiB), Over: resident > float64(budgetMiB),
			Detail: fmt.Sprintf("anonymous %d MiB, peak %d MiB", u.Anonymous/mib, u.Peak/mib),
		})
	}
}

// describe lists the requests, divided by n, server by server.
func (c counts) describe(n int) string {
	var parts []string
	for _, server := range slices.Sorted(maps.Keys(c)) {
		var kinds []string
		byName := func(a, b request) int { return strings.Compare(a.String(), b.String()) }
		for _, kind := range slices.SortedFunc(maps.Keys(c[server]), byName) {
			if kind.verb != "own" {
				kinds = append(kinds, fmt.Sprintf("%s %.3g", kind, float64(c[server][kind])/float64(n)))
			} else if own := c[server][kind]; own != 0 {
				kinds = append(kinds, fmt.Sprintf("the benchmark %.3g", float64(own)/float64(n)))
			}
		}
		if len(kinds) > 0 {
			parts = append(parts, server+": "+strings.Join(kinds, ", "))
		}
	}
	return strings.Join(parts, "; ")
}
