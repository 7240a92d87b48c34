//go:build linux

package testenv

import (
	"slices"
	"testing"
	"time"
)

// A long run with many requests hides no failures, be they soon after a fault or much later.
func TestRecovery(t *testing.T) {
	fault := time.UnixMilli(1_000_000)
	for _, test := range []struct {
		name   string
		failed []int // requests; one begins every 10 ms
		want   time.Duration
	}{
		{"none", nil, 0},
		{"one of a hundred", []int{50, 150, 1000}, 0},
		{"twenty in a row", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, 180 * time.Millisecond},
		{"two much later", []int{0, 1, 2, 3, 3000, 3099}, 30 * time.Second},
		{"two that are far from each other", []int{10, 11, 3000, 3100}, 100 * time.Millisecond},
		{"the last", []int{0, 1, 2, 4999}, 10 * time.Millisecond},
		{"two of the last", []int{0, 1, 2, 4950, 4999}, 49500 * time.Millisecond},
	} {
		var tally Tally
		for i := range 5000 {
			answer := "west"
			if slices.Contains(test.failed, i) {
				answer = ""
			}
			tally.Answers = append(tally.Answers, answer)
			tally.Starts = append(tally.Starts, fault.UnixMilli()+int64(10*i))
		}
		if got := tally.Recovery(fault); got != test.want {
			t.Errorf("%s: recovered after %s, want %s", test.name, got, test.want)
		}
		if got := tally.Failures(fault); len(got) != len(test.failed) {
			t.Errorf("%s: %d failures", test.name, len(got))
		}
		later := slices.DeleteFunc(slices.Clone(test.failed), func(i int) bool { return i < 1000 })
		if got, want := tally.Succeeding(fault.Add(10*time.Second)), 1-float64(len(later))/4000; got != want {
			t.Errorf("%s: from ten seconds on %f succeed, want %f", test.name, got, want)
		}
	}
}
