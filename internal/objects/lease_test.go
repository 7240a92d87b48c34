package objects

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
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

func TestMarks(t *testing.T) {
	copied, other := LeaderNonce("agent-1_x"), LeaderNonce("agent-2_y")
	lease := &coordinationv1.Lease{}
	if IsMarkedBy(lease, copied) {
		t.Error("a lease without a mark is marked")
	}
	lease.Annotations = map[string]string{v1alpha1.AnnotationDuplicate: copied + " 2026-01-01T00:00:00Z"}
	if !IsMarkedBy(lease, copied) || IsMarkedBy(lease, other) {
		t.Errorf("%v is not recognized as the mark of %s alone", lease.Annotations, copied)
	}
}

// Members renew as often as they are configured to until all of them together would renew too many
// leases a second; from there on the total stays the same.
func TestLeaseStretch(t *testing.T) {
	for members, want := range map[int]float64{0: 1, 2: 1, 250: 1, 375: 1.5, 1000: 4, 5000: 20} {
		if got := LeaseStretch(RenewEvery, members); got != want {
			t.Errorf("with %d members it is %v, want %v", members, got, want)
		}
	}
}
