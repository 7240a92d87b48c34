package agent

import (
	"testing"
	"time"
)

func TestReleaseIsDue(t *testing.T) {
	const mib = 1 << 20
	now := time.Now()
	for name, test := range map[string]struct {
		last   release
		unused uint64
		want   bool
	}{
		"within the reserve, never released":         {release{}, 16 * mib, false},
		"above the reserve, never released":          {release{}, 17 * mib, true},
		"fragments remained a moment ago":            {release{at: now.Add(-time.Second), remaining: 30 * mib}, 40 * mib, false},
		"grown since by more than the reserve":       {release{at: now.Add(-time.Second), remaining: 30 * mib}, 47 * mib, true},
		"fragments remained long ago":                {release{at: now.Add(-2 * time.Minute), remaining: 30 * mib}, 30 * mib, true},
		"within the reserve, last released long ago": {release{at: now.Add(-2 * time.Minute)}, 16 * mib, false},
	} {
		if got := test.last.isDue(test.unused, now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
