package objects

import "time"

// The times of a member's lease on the broker.
const (
	// RenewEvery is how often a member renews its lease.
	RenewEvery = 5 * time.Second
	// LeaseDuration is how long after its last renewal others take it for alive: three renewals may be lost.
	LeaseDuration = 20 * time.Second
)
