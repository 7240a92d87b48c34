package limits

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/seamark-dev/seamark/internal/objects"
)

func named(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("s%02d", i)}
}

func TestOldestStay(t *testing.T) {
	u := NewUsage()
	u.SetLimits(objects.Limits{Services: 2, Endpoints: 10, Bytes: 100})
	u.SetRecord(named(1), time.Unix(10, 0), 0)
	u.SetRecord(named(2), time.Unix(20, 0), 0)
	if got := u.SetRecord(named(3), time.Unix(5, 0), 0); !slices.Contains(got, named(2)) {
		t.Errorf("an older record affects %v", got)
	}
	for i, want := range map[int]bool{1: true, 2: false, 3: true, 4: false} {
		if got := u.Admits(named(i)); got != want {
			t.Errorf("service %d is admitted: %v, want %v", i, got, want)
		}
	}
	if got := u.RemoveRecord(named(3)); !slices.Contains(got, named(2)) {
		t.Errorf("a removed record affects %v", got)
	}
	u.SetSlice(named(1), "a", 6, 0)
	if got := u.SetSlice(named(2), "a", 5, 0); !slices.Equal(got, []types.NamespacedName{named(2)}) {
		t.Errorf("too many endpoints affect %v", got)
	}
	if !u.Admits(named(1)) || u.Admits(named(2)) {
		t.Error("the endpoints of the older service come first")
	}
}

// After any changes the admitted services are those of a usage that was built from scratch, and
// every service whose verdict changed was reported.
func TestUsageIsIndependentOfHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := NewUsage()
		type state struct {
			created int64
			bytes   int
			slices  map[string]int
		}
		have := map[int]*state{}
		limits := objects.Limits{Services: 3, Endpoints: 8, Bytes: 8}
		u.SetLimits(limits)
		verdicts := func(u *Usage) map[int]bool {
			out := map[int]bool{}
			for i, s := range have {
				if s.created > 0 {
					out[i] = u.Admits(named(i))
				}
			}
			return out
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := verdicts(u)
			i := rapid.IntRange(0, 5).Draw(t, "service")
			if have[i] == nil {
				have[i] = &state{slices: map[string]int{}}
			}
			var affected []types.NamespacedName
			switch rapid.IntRange(0, 2).Draw(t, "action") {
			case 0:
				have[i].created, have[i].bytes = int64(rapid.IntRange(1, 4).Draw(t, "created")), rapid.IntRange(0, 4).Draw(t, "bytes")
				affected = u.SetRecord(named(i), time.Unix(have[i].created, 0), have[i].bytes)
			case 1:
				have[i].created, have[i].bytes = 0, 0
				affected = u.RemoveRecord(named(i))
			case 2:
				slice, n := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "slice"), rapid.IntRange(0, 5).Draw(t, "endpoints")
				have[i].slices[slice] = n
				affected = u.SetSlice(named(i), slice, n, 0)
			}
			scratch := NewUsage()
			scratch.SetLimits(limits)
			for j, s := range have {
				if s.created > 0 {
					scratch.SetRecord(named(j), time.Unix(s.created, 0), s.bytes)
				}
				for slice, n := range s.slices {
					scratch.SetSlice(named(j), slice, n, 0)
				}
			}
			now, want := verdicts(u), verdicts(scratch)
			for j := range want {
				if now[j] != want[j] {
					t.Fatalf("service %d is admitted: %v, want %v", j, now[j], want[j])
				}
				if old, known := before[j]; known && j != i && old != now[j] && !slices.Contains(affected, named(j)) {
					t.Fatalf("the verdict on service %d changed, which was not reported: %v", j, affected)
				}
			}
		}
	})
}

func TestDerivedShare(t *testing.T) {
	for _, test := range []struct {
		ranges []string
		want   int
	}{
		{nil, math.MaxInt},
		{[]string{"10.96.0.0/24"}, 128},
		{[]string{"10.96.0.0/24", "10.97.0.0/24"}, 256},
		{[]string{"10.96.0.0/24", "fd00::/112"}, 128},
		{[]string{"fd00::/64"}, 1 << 39},
	} {
		var ranges []netip.Prefix
		for _, text := range test.ranges {
			ranges = append(ranges, netip.MustParsePrefix(text))
		}
		if got := DerivedShare(ranges); got != test.want {
			t.Errorf("%v: %d, want %d", test.ranges, got, test.want)
		}
	}
}
