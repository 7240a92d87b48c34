package proxy

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestServicesAreTakenOverAndHandedOver(t *testing.T) {
	t.Parallel()
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	start := time.Unix(1000, 0)
	over := takeover{}
	for _, step := range []struct {
		what         string
		after        time.Duration
		leavesOut    bool
		taken, first bool
		wait         time.Duration // until it is handed over
	}{
		{"nothing is left out", 0, false, false, false, 0},
		{"a cluster is unreachable", time.Second, true, true, true, 0},
		{"its endpoints change", 2 * time.Second, true, true, false, 0},
		{"the agent has written the slices", 3 * time.Second, false, true, false, handOverAfter},
		{"an endpoint changes before the hand-over", 23 * time.Second, false, true, false, handOverAfter - 20*time.Second},
		{"another cluster is unreachable", 24 * time.Second, true, true, false, 0},
		{"nothing is left out again", 25 * time.Second, false, true, false, handOverAfter},
		{"the time is over", 25*time.Second + handOverAfter, false, false, false, 0},
		{"a cluster is unreachable again", 10 * time.Minute, true, true, true, 0},
	} {
		now := start.Add(step.after)
		if taken, first := over.update(web, step.leavesOut, now); taken != step.taken || first != step.first {
			t.Errorf("%s: taken over %t, for the first time %t", step.what, taken, first)
		}
		if got := over.wait(now); got != step.wait {
			t.Errorf("%s: the next hand-over is due in %s, want %s", step.what, got, step.wait)
		}
		if due := over.over(now.Add(step.wait - time.Nanosecond)); len(due) > 0 {
			t.Errorf("%s: handed over too early: %v", step.what, due)
		}
		if due := over.over(now.Add(step.wait)); (len(due) == 1) != (step.wait > 0) {
			t.Errorf("%s: to be handed over after %s: %v", step.what, step.wait, due)
		}
	}
}

func TestEarlier(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]time.Duration{{0, 0, 0}, {0, 1, 1}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		if got := earlier(test[0], test[1]); got != test[2] {
			t.Errorf("of %d and %d: %d", test[0], test[1], got)
		}
	}
}
