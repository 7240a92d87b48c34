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

func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// shortNamespaces keeps the table narrow; -o json has them all.
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

func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// ago is how long ago a time was. A member's clock may be ahead of ours.
func Ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	return duration.HumanDuration(max(0, now.Sub(*t))) + " ago"
}

// shorten cuts a text at a word, so that a row stays a row.
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

// writeTable writes rows below a head. Only the last cell of a row may be painted, or columns would not line up.
func Table(w io.Writer, head []string, rows [][]string) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(head, "\t"))
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // an error of w shows in the next write
}
