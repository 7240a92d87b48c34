package objects

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// The times of a member's lease on the broker.
const (
	// RenewEvery is how often a member renews its lease.
	RenewEvery = 5 * time.Second
	// LeaseDuration is how long after its last renewal a member counts as alive: three renewals may
	// be lost.
	LeaseDuration = 20 * time.Second

	shortestLease = time.Second
	longestLease  = 10 * time.Minute
)

// LeaseDurationOf returns how long a lease lasts after its renewal, as its holder says, within
// bounds: another cluster wrote it.
func LeaseDurationOf(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.LeaseDurationSeconds == nil {
		return LeaseDuration
	}
	return min(max(time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second, shortestLease), longestLease)
}
