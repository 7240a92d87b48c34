package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Paint may colour a piece of text by its severity; "" is for headings.
type Paint func(severity Severity, text string) string

// Plain returns text as it is.
func Plain(_ Severity, text string) string { return text }

// Good is the severity to paint text with that needs no attention.
const Good Severity = "good"

// Write writes the report as text: first what is wrong and what to do, then the service hop by hop.
// Ages are relative to now.
func Write(w io.Writer, r Report, now time.Time, paint Paint) {
	severity := map[State]Severity{OK: "", Degraded: Warn, Broken: Fail}[r.State]
	fmt.Fprintf(w, "%s/%s (%s): %s\n", r.Namespace, r.Name, r.DNSName, paint(severity, conclusion(r)))
	for _, f := range r.Findings {
		writeFinding(w, f, now, paint)
	}
	writeExporters(w, r, now, paint)
	writeMerged(w, r, paint)
	writeEndpoints(w, r, paint)
	writeImporters(w, r, paint)
	writeTimeline(w, r, paint)
}

// conclusion returns the report in a few words. The first finding is the worst.
func conclusion(r Report) string {
	if len(r.Findings) == 0 || r.Findings[0].Severity == Note {
		return "all is well"
	}
	f := r.Findings[0]
	return fmt.Sprintf("%s at hop %q%s: %s", r.State, f.Hop, in(f.Cluster), f.Title)
}

func in(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " in " + cluster
}

func writeFinding(w io.Writer, f Finding, now time.Time, paint Paint) {
	fmt.Fprintf(w, "\n%s %s%s: %s\n", paint(f.Severity, strings.ToUpper(string(f.Severity))), f.Code, in(f.Cluster), f.Title)
	fmt.Fprintf(w, "  why  %s\n", f.Detail)
	for _, wait := range f.Waiting {
		fmt.Fprintf(w, "  wait %s, for %s: %s\n", wait.Reconciler, duration.HumanDuration(max(0, now.Sub(wait.Since))), wait.Text)
	}
	fmt.Fprintf(w, "  do   %s\n", f.Cure)
}

// table writes aligned rows under a heading; nothing when there are no rows.
func table(w io.Writer, heading string, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", heading)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "  "+strings.Join(head, "\t"))
	for _, row := range rows {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	_ = t.Flush() // the next write to w fails too
}

func writeExporters(w io.Writer, r Report, now time.Time, paint Paint) {
	var rows [][]string
	for _, x := range r.Exporters {
		age := "-"
		if x.ExportedAt != nil {
			age = duration.HumanDuration(max(0, now.Sub(*x.ExportedAt))) + " ago"
		}
		rows = append(rows, []string{x.Cluster, age, x.Heartbeat, x.Service, fmt.Sprintf("%d of %d", x.Ready, x.Total), x.State})
	}
	table(w, paint("", "EXPORTED BY"), []string{"CLUSTER", "SINCE", "HEARTBEAT", "SERVICE", "READY", "STATE"}, rows)
}

func writeMerged(w io.Writer, r Report, paint Paint) {
	m := r.Merged
	if m == nil {
		return
	}
	rows := [][]string{
		{"type", fmt.Sprintf("%s (%s), as %s has it: the oldest export", m.Type, m.Mode, m.Precedence[0])},
		{"ports", orNone(strings.Join(m.Ports, ", "))},
		{"families", orNone(strings.Join(m.Families, ", "))},
		{"policies", m.Policies},
		{"taking part", strings.Join(m.Precedence, ", ")},
	}
	if len(m.IPs) > 0 {
		rows = append(rows, []string{"clusterset IP", fmt.Sprintf("%s, allocated by %s", strings.Join(m.IPs, ", "), orNone(m.AllocatedBy))})
	}
	for _, id := range slices.Sorted(maps.Keys(m.LeftOut)) {
		rows = append(rows, []string{"left out", fmt.Sprintf("%s: %s", id, m.LeftOut[id])})
	}
	for _, c := range r.Conflicts {
		rows = append(rows, []string{"conflict", fmt.Sprintf("%s: %s", c.Reason, c.Message)})
	}
	fmt.Fprintf(w, "\n%s\n", paint("", "MERGED"))
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	_ = t.Flush()
}

func writeEndpoints(w io.Writer, r Report, paint Paint) {
	var rows [][]string
	for _, n := range r.Endpoints {
		rows = append(rows, []string{n.Cluster, orDash(n.Zone), fmt.Sprint(n.Ready), fmt.Sprint(n.NotReady), fmt.Sprint(n.Terminating)})
	}
	table(w, paint("", "ENDPOINTS"), []string{"CLUSTER", "ZONE", "READY", "NOT READY", "TERMINATING"}, rows)
}

func writeImporters(w io.Writer, r Report, paint Paint) {
	var rows [][]string
	for _, i := range r.Importers {
		var endpoints []string
		for _, source := range slices.Sorted(maps.Keys(i.Endpoints)) {
			endpoints = append(endpoints, fmt.Sprintf("%s:%d", source, i.Endpoints[source]))
		}
		rows = append(rows, []string{
			i.Cluster, i.State, orDash(strings.Join(i.IPs, ",")), orDash(strings.Join(endpoints, " ")), orDash(string(i.DataPlane)), i.Programmed,
		})
	}
	table(w, paint("", "IMPORTED BY"), []string{"CLUSTER", "STATE", "ADDRESS", "ENDPOINTS", "DATA PLANE", "PROGRAMMED"}, rows)
	writeAnswers(w, r, paint)
}

// writeAnswers writes what DNS answers; the names too where the clusters' zones differ.
func writeAnswers(w io.Writer, r Report, paint Paint) {
	differ := slices.ContainsFunc(r.Importers, func(i Importer) bool { return i.DNSName != r.DNSName })
	head := []string{"CLUSTER", "ANSWER"}
	if differ {
		head = []string{"CLUSTER", "NAME", "ANSWER"}
	}
	var rows [][]string
	for _, i := range r.Importers {
		row := []string{i.Cluster, i.DNS}
		if differ {
			row = []string{i.Cluster, i.DNSName, i.DNS}
		}
		rows = append(rows, row)
	}
	table(w, paint("", "DNS RIGHT NOW"), head, rows)
}

func writeTimeline(w io.Writer, r Report, paint Paint) {
	var rows [][]string
	for _, s := range r.Timeline {
		took := "<1s later"
		if s.Took >= 1 {
			took = duration.HumanDuration(time.Duration(s.Took*float64(time.Second))) + " later"
		}
		if len(rows) == 0 || rows[len(rows)-1][0] != s.Change {
			took = s.At.Format(time.RFC3339)
		}
		rows = append(rows, []string{s.Change, s.Where, s.What, took})
	}
	table(w, paint("", "LAST CHANGES, IN WHOLE SECONDS"), []string{"CHANGE", "WHERE", "WHAT", "WHEN"}, rows)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
