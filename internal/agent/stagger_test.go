package agent

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestFailedReconcilesAreSpread(t *testing.T) {
	for _, attempts := range []int{1, 3, 20} {
		meant := min(minBackoff<<(attempts-1), maxBackoff)
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			backoff, delay := newBackoff(), time.Duration(0)
			for range attempts {
				delay = backoff.When(reconcile.Request{})
			}
			least, most = min(least, delay), max(most, delay)
		}
		if least < meant/2 || most > meant*3/2 || most-least < meant/2 {
			t.Errorf("after %d failures: delays from %v to %v, meant is %v", attempts, least, most, meant)
		}
	}
}

func TestReportsAreSpread(t *testing.T) {
	for _, c := range []struct {
		reported    bool
		failed      int
		least, most time.Duration
	}{
		{true, 0, 45 * time.Second, 75 * time.Second},
		{false, 0, 750 * time.Millisecond, 1250 * time.Millisecond},
		{false, 2, 3 * time.Second, 5 * time.Second},
		{false, 1_000_000, 11250 * time.Millisecond, 18750 * time.Millisecond},
	} {
		if least, most := reportDelay(c.reported, c.failed, 0), reportDelay(c.reported, c.failed, time.Second); least != c.least || most != c.most {
			t.Errorf("%+v: from %v to %v", c, least, most)
		}
	}
}
