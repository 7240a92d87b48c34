package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// results are everything that was measured.
type results struct {
	size         sizes
	ours, theirs sideResults
	direct       rate
}

type sideResults struct {
	few, many load
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

// write prints the table.
func (r *results) write(w io.Writer) error {
	n, few := count(r.size.many), count(r.size.few)
	o, t := &r.ours, &r.theirs
	rows := [][]string{
		{"what", "Seamark", "kube-proxy", "ratio", "budget", ""},
		{"---", "---", "---", "---", "---", "---"},
		faster(fmt.Sprintf("full load, %s × %d", n, r.size.endpoints), o.many.full, t.many.full, 10),
		plain("from process start to the first connection, "+n, ms(o.many.first), ms(t.many.first)),
		faster("one change, sync, "+n, median(o.many.updates), median(t.many.updates), 100),
		plain("one change, sync, "+few, ms(median(o.few.updates)), ms(median(t.few.updates))),
		growth("one change, sync, "+n+" compared with "+few, o, t),
		plain("one change on the API server → first connection, "+n, ms(median(o.many.noticed)), ms(median(t.many.noticed))),
		plain("kernel memory of the rules, "+n, mib(o.rules), mib(t.rules)),
		plain("resident memory of the process, "+n, mib(o.many.resident), mib(t.many.resident)),
		rates("new connections/s", o.rate.perSecond(), t.rate.perSecond(), 1, "≥ kube-proxy"),
		rates(fmt.Sprintf("new connections/s, direct to the pod: %.0f", r.direct.perSecond()), o.rate.perSecond(), r.direct.perSecond(), 0.9, "≥ 0.9 × direct"),
		plain("connect latency p50 (direct "+us(r.direct.percentile(50))+")", us(o.rate.percentile(50)), us(t.rate.percentile(50))),
		plain("connect latency p99 (direct "+us(r.direct.percentile(99))+")", us(o.rate.percentile(99)), us(t.rate.percentile(99))),
	}
	rows = append(rows, plain(fmt.Sprintf("rounds, connections/s (direct %.0f)", r.direct.rounds), fmt.Sprintf("%.0f", o.rate.rounds), fmt.Sprintf("%.0f", t.rate.rounds)))
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return err
		}
	}
	return nil
}

func plain(what, ours, theirs string) []string { return []string{what, ours, theirs, "", "", ""} }

// faster is a row whose budget is how many times faster ours must be.
func faster(what string, ours, theirs time.Duration, budget float64) []string {
	ratio := float64(theirs) / float64(max(ours, 1))
	return []string{what, ms(ours), ms(theirs), fmt.Sprintf("%.0f × faster", ratio), fmt.Sprintf("≥ %.0f ×", budget), verdict(ratio >= budget)}
}

// growth compares a change among many services with one among few. Both contain waiting for the kernel's grace periods, which vary by
// more than the work itself.
func growth(what string, ours, theirs *sideResults) []string {
	of := func(s *sideResults) float64 {
		return float64(median(s.many.updates)) / float64(max(median(s.few.updates), 1))
	}
	return []string{what, fmt.Sprintf("%.1f ×", of(ours)), fmt.Sprintf("%.1f ×", of(theirs)), "", "the same", verdict(of(ours) < 2)}
}

func rates(what string, ours, other float64, budget float64, words string) []string {
	ratio := ours / other
	return []string{what, fmt.Sprintf("%.0f", ours), fmt.Sprintf("%.0f", other), fmt.Sprintf("%.2f ×", ratio), words, verdict(ratio >= budget)}
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "**over**"
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
func us(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }
func mib(b int64) string        { return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20)) }

// count writes 10000 as 10,000.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
