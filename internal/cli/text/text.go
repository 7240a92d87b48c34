// Package text formats tables and short phrases for the terminal.
package text

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Plural returns a number with its noun, in the plural unless it is 1.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Namespaces lists the first namespaces for a cell of a table, and how many more there are.
func Namespaces(names []string) string {
	const shown = 3
	switch {
	case len(names) == 0:
		return "(default)"
	case len(names) > shown:
		return fmt.Sprintf("%s, +%d", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// OrDash returns a text, or a dash for the empty one.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Ago returns how long ago a time was; never for nil. A time in the future, by a clock that is
// ahead, counts as now.
func Ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	return duration.HumanDuration(max(0, now.Sub(*t))) + " ago"
}

// Shorten makes a text one line of at most limit bytes, and cuts it between words if it can.
func Shorten(text string, limit int) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if len(text) <= limit {
		return text
	}
	cut := strings.LastIndex(text[:limit], " ")
	if cut < limit/2 {
		cut = limit
	}
	return strings.ToValidUTF8(text[:cut], "") + "…"
}

// Table writes rows below a head, with aligned columns. Only the last cell of a row may have
// colours: the escape codes would count as characters.
func Table(w io.Writer, head []string, rows [][]string) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(head, "\t"))
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // an error of w shows in the next write
}
