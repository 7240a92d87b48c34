package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// row is one line of the report.
type row struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit,omitempty"`
	Seamark  float64 `json:"seamark"`
	Constant float64 `json:"constant,omitempty"`
	InTree   float64 `json:"inTree,omitempty"`
	// Budget says what is allowed; empty where nothing is said.
	Budget string `json:"budget,omitempty"`
	// Over is set when the budget was missed.
	Over bool `json:"over,omitempty"`
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

// compare makes rows of what was measured with n services.
func (r *report) compare(n int, found map[string]*figures) {
	const mib = 1 << 20
	ours, ceiling, theirs := found["seamark"], found["constant"], found["in-tree"]
	add := func(name, unit string, value func(*figures) float64, budget string, over func(ours, ceiling, theirs float64) bool) {
		line := row{Name: fmt.Sprintf("%s, %d services", name, n), Unit: unit, Seamark: value(ours), Constant: value(ceiling), InTree: value(theirs), Budget: budget}
		line.Over = over != nil && over(line.Seamark, line.Constant, line.InTree)
		r.Rows = append(r.Rows, line)
	}
	milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	add("answers per second", "/s", func(f *figures) float64 { return median(f.rates) }, "≥ 0.95 × constant, ≥ 1.6 × in-tree",
		func(o, c, t float64) bool { return o < 0.95*c || o < 1.6*t })
	add("CPU per query", "µs", func(f *figures) float64 { return median(f.cpus) }, "≤ 1.1 × constant", func(o, c, _ float64) bool { return o > 1.1*c })
	add("answers per second, headless of 1,000 endpoints", "/s", func(f *figures) float64 { return median(f.bigRates) }, "", nil)
	add("CPU per query, headless of 1,000 endpoints", "µs", func(f *figures) float64 { return median(f.bigCPUs) }, "", nil)
	add(fmt.Sprintf("latency at %d/s, p50", latencyRate), "ms", func(f *figures) float64 { return milliseconds(f.p50) }, "", nil)
	add(fmt.Sprintf("latency at %d/s, p99", latencyRate), "ms", func(f *figures) float64 { return milliseconds(f.p99) }, "", nil)
	add("memory after load, without the program", "MiB", func(f *figures) float64 { return float64(f.resident) / mib }, "≤ in-tree", func(o, _, t float64) bool { return o > t })
	budget := ""
	if n == 1000 {
		budget = "≤ 1300 ms"
	}
	add("start until all names are answered", "ms", func(f *figures) float64 { return milliseconds(f.answerable) }, budget,
		func(o, _, _ float64) bool { return n == 1000 && o > 1300 })
	add("names denied while starting", "", func(f *figures) float64 { return float64(f.denied) }, "0", func(o, _, _ float64) bool { return o > 0 })
	add("change until answered, p50", "ms", func(f *figures) float64 { return milliseconds(percentile(f.changes, 0.5)) }, "", nil)
	add("change until answered, p99", "ms", func(f *figures) float64 { return milliseconds(percentile(f.changes, 0.99)) }, "", nil)
}

// percentile is the smallest value that the given part of all values does not exceed.
func percentile(values []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r.Rows)
}

func (r *report) writeTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "WHAT\tSEAMARK\tCONSTANT\tIN-TREE\tTO CONSTANT\tTO IN-TREE\tBUDGET\t")
	over := 0
	for _, line := range r.Rows {
		verdict := ""
		switch {
		case line.Over:
			verdict = "OVER"
			over++
		case line.Budget != "":
			verdict = "ok"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", line.Name, number(line.Seamark, line.Unit), number(line.Constant, line.Unit),
			number(line.InTree, line.Unit), ratio(line.Seamark, line.Constant), ratio(line.Seamark, line.InTree), line.Budget, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
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

func ratio(a, b float64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f ×", a/b)
}

// number prints with as many digits as mean something, and nothing where nothing was measured.
func number(v float64, unit string) string {
	switch {
	case v == 0 && unit != "":
		return ""
	case v == math.Trunc(v), v >= 1000:
		return fmt.Sprintf("%.0f %s", v, unit)
	case v < 1:
		return fmt.Sprintf("%.3f %s", v, unit)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
