package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the report. Bare and Ratio are zero where there is nothing to compare with.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	Bare  float64 `json:"bareChain,omitempty"`
	Ratio float64 `json:"ratio,omitempty"`
	// Budget says what is allowed; empty where nothing is said.
	Budget string `json:"budget,omitempty"`
	// Over is set when the budget was missed.
	Over bool `json:"over,omitempty"`
	// Detail explains a number.
	Detail string `json:"detail,omitempty"`
}

// report collects the rows and tells how it is getting on.
type report struct {
	Progress io.Writer
	Rows     []row
	start    time.Time
}

func (r *report) say(format string, args ...any) {
	if r.start.IsZero() {
		r.start = time.Now()
	}
	_, _ = fmt.Fprintf(r.Progress, "%6.1fs  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

func (r *report) row(line row) { r.Rows = append(r.Rows, line) }

// times reports the median and the 99th percentile; a budget of zero is none.
func (r *report) times(name string, agents, bare []time.Duration, budget50, budget99 float64) {
	for _, p := range []struct {
		name   string
		part   float64
		budget float64
	}{{"p50", 0.5, budget50}, {"p99", 0.99, budget99}} {
		r.compare(name+", "+p.name, percentile(agents, p.part), percentile(bare, p.part), time.Millisecond, "ms", p.budget)
	}
}

// total reports a time as a whole.
func (r *report) total(name string, took, bare time.Duration, budget float64, detail string) {
	r.compare(name, took, bare, time.Second, "s", budget)
	r.Rows[len(r.Rows)-1].Detail = detail
}

func (r *report) compare(name string, took, bare, in time.Duration, unit string, budget float64) {
	line := row{Name: name, Unit: unit, Value: float64(took) / float64(in), Bare: float64(bare) / float64(in), Ratio: float64(took) / float64(bare)}
	if budget > 0 {
		line.Budget, line.Over = fmt.Sprintf("≤ %g ×", budget), line.Ratio > budget
	}
	r.row(line)
}

// percentile is the smallest value that the given part of all values does not exceed.
func percentile(values []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

func (r *report) requestsPerExport(n int, c counts) {
	const budget = 10
	each := float64(c.total()) / float64(n)
	r.row(row{
		Name: fmt.Sprintf("API requests per export, %d at once", n), Value: each,
		Budget: fmt.Sprintf("≤ %d", budget), Over: each > budget, Detail: c.describe(n),
	})
}

func (r *report) podChange(n int, c counts) {
	line := row{
		Name: "slices written per importer for a pod change in 1,000", Value: float64(c.on("importer")) / float64(n),
		Budget: "1, nothing else", Detail: c.describe(n),
	}
	for server := range c {
		line.Over = line.Over || c.on(server) != int64(n) || c[server][request{"PUT", "endpointslices"}] < int64(n)
	}
	r.row(line)
}

// none reports requests that should not have been.
func (r *report) none(name string, c counts) {
	r.row(row{Name: name, Value: float64(c.total()), Budget: "0", Over: c.total() != 0, Detail: c.describe(1)})
}

func (r *report) usage(n, budgetMiB int, before, after map[string]used) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		r.row(row{Name: fmt.Sprintf("CPU of the %s's agent for %d exports", name, n), Value: (after[name].cpu - before[name].cpu).Seconds(), Unit: "s"})
	}
	r.memory(fmt.Sprintf("at %d exports", n), budgetMiB, after)
}

func (r *report) memory(when string, budgetMiB int, now map[string]used) {
	const mib = 1 << 20
	for _, name := range slices.Sorted(maps.Keys(now)) {
		u := now[name]
		resident := float64(u.resident) / mib
		r.row(row{
			Name: fmt.Sprintf("resident memory of the %s's agent %s", name, when), Value: resident, Unit: "MiB",
			Budget: fmt.Sprintf("≤ %d MiB", budgetMiB), Over: resident > float64(budgetMiB),
			Detail: fmt.Sprintf("without files %d MiB, largest %d MiB", u.anonymousOnly/mib, u.largest/mib),
		})
	}
}

// describe lists the requests, divided by n, server by server.
func (c counts) describe(n int) string {
	var parts []string
	for _, server := range slices.Sorted(maps.Keys(c)) {
		var kinds []string
		for _, kind := range slices.SortedFunc(maps.Keys(c[server]), func(a, b request) int { return strings.Compare(a.String(), b.String()) }) {
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

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r.Rows)
}

func (r *report) writeTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "WHAT\tSEAMARK\tBARE CHAIN\tRATIO\tBUDGET\t")
	over := 0
	for _, line := range r.Rows {
		bare, ratio, verdict := "", "", ""
		if line.Bare > 0 {
			bare, ratio = number(line.Bare, line.Unit), fmt.Sprintf("%.2f ×", line.Ratio)
		}
		switch {
		case line.Over:
			verdict = "OVER"
			over++
		case line.Budget != "":
			verdict = "ok"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", line.Name, number(line.Value, line.Unit), bare, ratio, line.Budget, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, line := range r.Rows {
		if line.Detail != "" {
			_, _ = fmt.Fprintf(w, "- %s: %s\n", line.Name, line.Detail)
		}
	}
	verdict := "every budget was met"
	switch {
	case len(r.Rows) == 0:
		verdict = "nothing was measured"
	case over > 0:
		verdict = fmt.Sprintf("%d budgets were MISSED; on a busy machine run it again before believing the times", over)
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

// number prints with as many digits as mean something.
func number(v float64, unit string) string {
	text := fmt.Sprintf("%.1f", v)
	if v == math.Trunc(v) {
		text = fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSpace(text + " " + unit)
}
