package objects

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// Another cluster writes its lease, so the duration in it is believed within bounds only.
func TestLeaseDurationOf(t *testing.T) {
	for name, test := range map[string]struct {
		seconds *int32
		want    time.Duration
	}{
		"not set":  {nil, LeaseDuration},
		"zero":     {ptr.To[int32](0), shortestLease},
		"negative": {ptr.To[int32](-5), shortestLease},
		"usual":    {ptr.To[int32](40), 40 * time.Second},
		"a day":    {ptr.To[int32](86400), longestLease},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: test.seconds}}
			if got := LeaseDurationOf(lease); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
