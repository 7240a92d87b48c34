package agent

import (
	"testing"
	"time"
)

const mib = 1 << 20

func TestReleaseIsDue(t *testing.T) {
	now := time.Now()
	const busy = 5 * mib
	for name, test := range map[string]struct {
		last     release
		unused   uint64
		recently uint64
		want     bool
	}{
		"within the reserve, never released":         {release{}, 16 * mib, busy, false},
		"above the reserve, never released":          {release{}, 17 * mib, busy, true},
		"fragments remained a moment ago":            {release{at: now.Add(-time.Second), remaining: 30 * mib}, 40 * mib, busy, false},
		"grown since by more than the reserve":       {release{at: now.Add(-time.Second), remaining: 30 * mib}, 47 * mib, busy, true},
		"fragments remained long ago":                {release{at: now.Add(-2 * time.Minute), remaining: 30 * mib}, 30 * mib, busy, true},
		"within the reserve, last released long ago": {release{at: now.Add(-2 * time.Minute)}, 16 * mib, busy, false},
		"calm after a burst":                         {release{at: now.Add(-time.Minute)}, 2 * mib, mib / 2, true},
		"calm, and little was allocated since":       {release{at: now.Add(-time.Minute), allocated: 93 * mib}, 2 * mib, mib / 2, false},
	} {
		h := heap{held: 50*mib + test.unused, live: 50 * mib, allocated: 100 * mib}
		if got := test.last.isDue(h, test.recently, now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// The garbage of a large heap is bounded, and never collected so often that it takes the cores.
func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 50, 20 * mib: 50, 48 * mib: 50, 60 * mib: 40, 96 * mib: 25, 500 * mib: 20} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d MiB in use: %d %%, want %d %%", live/mib, got, want)
		}
	}
}
