// Package report has what all benchmarks share: their flags, their progress messages, and their
// results as a table, as JSON and as a plot. Results are ratios to peers that are measured in the
// same run, because times on a shared machine are noisy.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is one line of a report.
type Row struct {
	// Name says what was measured.
	Name string
	// Value is that of Seamark.
	Value float64
	Unit  string
	// Peers are the values of the report's Peers, in the same order. A value that is zero or missing
	// is not compared.
	Peers []float64
	// Faster inverts the ratios: they say how many times faster or smaller Seamark is.
	Faster bool
	// Budget is the limit as text; empty if there is none.
	Budget string
	// Over reports whether the budget was missed.
	Over bool
	// Detail explains a number.
	Detail string
}

// Report collects rows and prints progress.
type Report struct {
	// Title of the plot.
	Title string
	// Peers are the names of what Seamark is compared with.
	Peers []string
	// Progress is where Say prints.
	Progress io.Writer
	Rows     []Row

	start time.Time
}

// Say prints a step that begins, with the time since the first one.
func (r *Report) Say(format string, args ...any) {
	if r.start.IsZero() {
		r.start = time.Now()
	}
	_, _ = fmt.Fprintf(r.Progress, "%6.1fs  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// Add appends a row.
func (r *Report) Add(row Row) { r.Rows = append(r.Rows, row) }

// Ratio returns Seamark's value divided by the peer's, or the inverse with Faster. It is 0 if there
// is no value to compare with.
func (r Row) Ratio(peer int) float64 {
	if peer >= len(r.Peers) || r.Peers[peer] == 0 || r.Value == 0 {
		return 0
	}
	if r.Faster {
		return r.Peers[peer] / r.Value
	}
	return r.Value / r.Peers[peer]
}

// jsonRow is a row as JSON.
type jsonRow struct {
	Name   string             `json:"name"`
	Value  float64            `json:"value"`
	Unit   string             `json:"unit,omitempty"`
	Peers  map[string]float64 `json:"peers,omitempty"`
	Ratios map[string]float64 `json:"ratios,omitempty"`
	Budget string             `json:"budget,omitempty"`
	Over   bool               `json:"over,omitempty"`
	Detail string             `json:"detail,omitempty"`
}

// WriteJSON prints the rows as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	rows := make([]jsonRow, 0, len(r.Rows))
	for _, row := range r.Rows {
		out := jsonRow{Name: row.Name, Value: row.Value, Unit: row.Unit, Budget: row.Budget, Over: row.Over, Detail: row.Detail}
		for i, peer := range r.Peers {
			if ratio := row.Ratio(i); ratio != 0 {
				if out.Peers == nil {
					out.Peers, out.Ratios = map[string]float64{}, map[string]float64{}
				}
				out.Peers[peer], out.Ratios[peer] = row.Peers[i], ratio
			}
		}
		rows = append(rows, out)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(rows)
}

// WriteTable prints the rows as an aligned table, with the details and the verdict below it.
func (r *Report) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range r.cells() {
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t")+"\t")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if row.Detail != "" {
			_, _ = fmt.Fprintf(w, "- %s: %s\n", row.Name, row.Detail)
		}
	}
	_, err := fmt.Fprintln(w, r.verdict())
	return err
}

// WriteMarkdown prints the table for the documentation.
func (r *Report) WriteMarkdown(w io.Writer) error {
	for i, cells := range r.cells() {
		if i == 0 {
			for j := range cells {
				cells[j] = strings.ToLower(cells[j])
			}
		}
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")); err != nil {
			return err
		}
		if i == 0 {
			_, _ = fmt.Fprintln(w, strings.Repeat("|---", len(cells))+"|")
		}
	}
	return nil
}

// cells returns the cells of the table, the header first.
func (r *Report) cells() [][]string {
	header := []string{"WHAT", "SEAMARK"}
	for _, peer := range r.Peers {
		header = append(header, strings.ToUpper(peer), "RATIO")
	}
	out := [][]string{append(header, "BUDGET", "")}
	for _, row := range r.Rows {
		cells := []string{row.Name, number(row.Value, row.Unit)}
		for i := range r.Peers {
			peer, ratio := "", ""
			if value := row.Ratio(i); value != 0 {
				peer, ratio = number(row.Peers[i], row.Unit), times(value)
			}
			cells = append(cells, peer, ratio)
		}
		verdict := ""
		switch {
		case row.Over:
			verdict = "OVER"
		case row.Budget != "":
			verdict = "ok"
		}
		out = append(out, append(cells, row.Budget, verdict))
	}
	return out
}

func (r *Report) verdict() string {
	over := 0
	for _, row := range r.Rows {
		if row.Over {
			over++
		}
	}
	switch {
	case len(r.Rows) == 0:
		return "nothing was measured"
	case over > 0:
		budgets := "1 budget was"
		if over > 1 {
			budgets = fmt.Sprintf("%d budgets were", over)
		}
		return budgets + " MISSED; on a busy machine repeat the run before you trust the times"
	}
	return "every budget was met"
}

// times formats a ratio.
func times(ratio float64) string {
	switch {
	case ratio >= 10:
		return fmt.Sprintf("%.0f ×", ratio)
	case ratio < 0.1:
		return fmt.Sprintf("%.1g ×", ratio)
	}
	return fmt.Sprintf("%.2f ×", ratio)
}

// number formats a value with the digits that are significant.
func number(v float64, unit string) string {
	text := ""
	switch {
	case v == math.Trunc(v), v >= 1000:
		text = fmt.Sprintf("%.0f", v)
	case v < 1:
		text = fmt.Sprintf("%.3f", v)
	default:
		text = fmt.Sprintf("%.1f", v)
	}
	return strings.TrimSpace(text + " " + unit)
}

// Percentile returns the smallest value that the given part of all values does not exceed.
func Percentile(values []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// Milliseconds returns a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
