package member

import (
	"fmt"
	"testing"
	"time"
)

// A thousand members that start together renew their leases at moments that are spread over the
// whole interval.
func TestHeartbeatsOfMembersAreSpread(t *testing.T) {
	const members, parts = 1000, 10
	var renewals [parts + 1]int
	for i := range members {
		h := &Heartbeat{ClusterID: fmt.Sprintf("cluster-%d", i), RenewEvery: 10 * time.Second}
		phase := h.phase() // of a replica that does not renew yet, so of half an interval
		if phase <= 0 || phase > h.RenewEvery/2+h.RenewEvery/100 {
			t.Fatalf("%s begins after %v", h.ClusterID, phase)
		}
		renewals[phase*parts/(h.RenewEvery/2)]++
	}
	for i, n := range renewals[:parts] {
		if n < members/parts/2 || n > members/parts*2 {
			t.Errorf("%d of %d members renew in part %d of %d", n, members, i+1, parts)
		}
	}
}
