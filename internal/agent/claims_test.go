package agent

import (
	"testing"
	"time"
)

// All members together read claims at most every other second, and one alone often enough.
func TestClaimDelay(t *testing.T) {
	for members, interval := range map[int]time.Duration{1: 10 * time.Minute, 200: 10 * time.Minute, 1000: 50 * time.Minute} {
		for range 100 {
			if got := claimDelay(members); got < interval/2 || got >= interval*3/2 {
				t.Fatalf("one of %d members waits for %s, want %s to %s", members, got, interval/2, interval*3/2)
			}
		}
	}
}
