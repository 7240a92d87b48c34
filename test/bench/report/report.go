// Package report is what the benchmarks have in common: their flags, how they tell of their progress, and their results as a table, as JSON and as a
// plot. Results are ratios to peers measured in the same run, because times on a shared machine are noise.
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
	// Value is ours.
	Value float64
	Unit  string
	// Peers are what others took for the same, in the order of the report's Peers; zero or missing where there is nothing to compare with.
	Peers []float64
	// Faster shows ratios as how many times ours is faster or smaller.
	Faster bool
	// Budget says what is allowed; empty where nothing is said.
	Budget string
	// Over is set when the budget was missed.
	Over bool
	// Detail explains a number.
	Detail string
}

// Report collects rows and tells how it is getting on.
type Report struct {
	// Title is for the plot.
	Title string
	// Peers name what is compared with.
	Peers []string
	// Progress is where progress is told.
	Progress io.Writer
	Rows     []Row

	start time.Time
}

// Say tells of a step that begins.
func (r *Report) Say(format string, args ...any) {
	if r.start.IsZero() {
		r.start = time.Now()
	}
	_, _ = fmt.Fprintf(r.Progress, "%6.1fs  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// Add appends a row.
func (r *Report) Add(line Row) { r.Rows = append(r.Rows, line) }

// Ratio is ours to a peer's, or the other way round where ours should be the smaller by far; 0 where there is nothing to compare with.
func (l Row) Ratio(peer int) float64 {
	if peer >= len(l.Peers) || l.Peers[peer] == 0 || l.Value == 0 {
		return 0
	}
	if l.Faster {
		return l.Peers[peer] / l.Value
	}
	return l.Value / l.Peers[peer]
}

// jsonRow is a row for programs.
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

// WriteJSON prints the rows for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	rows := make([]jsonRow, 0, len(r.Rows))
	for _, line := range r.Rows {
		out := jsonRow{Name: line.Name, Value: line.Value, Unit: line.Unit, Budget: line.Budget, Over: line.Over, Detail: line.Detail}
		for i, peer := range r.Peers {
			if ratio := line.Ratio(i); ratio != 0 {
				if out.Peers == nil {
					out.Peers, out.Ratios = map[string]float64{}, map[string]float64{}
				}
				out.Peers[peer], out.Ratios[peer] = line.Peers[i], ratio
			}
		}
		rows = append(rows, out)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(rows)
}

// WriteTable prints the rows for people.
func (r *Report) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range r.cells() {
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t")+"\t")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, line := range r.Rows {
		if line.Detail != "" {
			_, _ = fmt.Fprintf(w, "- %s: %s\n", line.Name, line.Detail)
		}
	}
	_, err := fmt.Fprintln(w, r.verdict())
	return err
}

// WriteMarkdown prints the table as the documentation has it.
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

// cells are the texts of the table, its head first.
func (r *Report) cells() [][]string {
	head := []string{"WHAT", "SEAMARK"}
	for _, peer := range r.Peers {
		head = append(head, strings.ToUpper(peer), "RATIO")
	}
	out := [][]string{append(head, "BUDGET", "")}
	for _, line := range r.Rows {
		cells := []string{line.Name, number(line.Value, line.Unit)}
		for i := range r.Peers {
			peer, ratio := "", ""
			if value := line.Ratio(i); value != 0 {
				peer, ratio = number(line.Peers[i], line.Unit), times(value)
			}
			cells = append(cells, peer, ratio)
		}
		verdict := ""
		switch {
		case line.Over:
			verdict = "OVER"
		case line.Budget != "":
			verdict = "ok"
		}
		out = append(out, append(cells, line.Budget, verdict))
	}
	return out
}

func (r *Report) verdict() string {
	over := 0
	for _, line := range r.Rows {
		if line.Over {
			over++
		}
	}
	switch {
	case len(r.Rows) == 0:
		return "nothing was measured"
	case over > 0:
		return fmt.Sprintf("%d budgets were MISSED; on a busy machine run it again before believing the times", over)
	}
	return "every budget was met"
}

func times(ratio float64) string {
	switch {
	case ratio >= 10:
		return fmt.Sprintf("%.0f ×", ratio)
	case ratio < 0.1:
		return fmt.Sprintf("%.1g ×", ratio)
	}
	return fmt.Sprintf("%.2f ×", ratio)
}

// number prints with as many digits as mean something.
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

// Percentile is the smallest value that the given part of all values does not exceed.
func Percentile(values []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// Milliseconds of a time.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
