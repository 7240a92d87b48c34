// Package member is this cluster as a member of its clusterset: its heartbeat, its view of who else is alive, its identity
// objects, its credential and the settings it was given.
package member

import (
	"sync"
	"time"
)

// Liveness judges which clusters are stale: by the time since their last renewal was observed, on this observer's own clock,
// and only while the observer's own watch of the broker is live. It is live while this member's own renewals come back
// through it. No other clock is ever compared: members' clocks may be hours apart.
type Liveness struct {
	self string

	mu      sync.Mutex
	leases  map[string]*lease
	ownRenewalObserved time.Time
	watchLive    bool
	stale   map[string]bool
}

type lease struct {
	renewTime  time.Time // as its owner wrote it: only whether it changed matters
	observed     time.Time // when the change was observed here
	duration time.Duration
}

// NewLiveness returns a judge for the member self. Nobody is stale until a lease has been watched for its duration.
func NewLiveness(self string) *Liveness {
	return &Liveness{self: self, leases: map[string]*lease{}, stale: map[string]bool{}}
}

// Observe takes note of a cluster's lease as the watch shows it.
func (l *Liveness) Observe(cluster string, renewed time.Time, duration time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.leases[cluster]
	if known != nil && known.renewTime.Equal(renewed) {
		return
	}
	l.leases[cluster] = &lease{renewTime: renewed, observed: now, duration: duration}
	if cluster == l.self {
		l.ownRenewalObserved = now
	}
}

// Forget drops a cluster whose lease is gone: its member was removed, and its records with it.
func (l *Liveness) Forget(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, cluster)
}

// Judge decides anew who is stale and returns the clusters for which that changed.
func (l *Liveness) Update(now time.Time) (changed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasLive := l.watchLive
	own := l.leases[l.self]
	l.watchLive = own != nil && now.Sub(l.ownRenewalObserved) <= own.duration/2
	if !l.watchLive {
		return nil // deaf, not alone: what was known stays
	}
	next := map[string]bool{}
	for cluster, lease := range l.leases {
		if !wasLive && !l.stale[cluster] {
			lease.observed = now // it may have renewed while nothing could be heard: its time starts again
		}
		if cluster != l.self && now.Sub(lease.observed) > lease.duration {
			next[cluster] = true
		}
		if next[cluster] != l.stale[cluster] {
			changed = append(changed, cluster)
		}
	}
	for cluster := range l.stale {
		if _, known := l.leases[cluster]; !known {
			changed = append(changed, cluster)
		}
	}
	l.stale = next
	return changed
}

// Stale are the clusters that have not been heard from. The map must not be changed.
func (l *Liveness) Stale() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stale
}

// Heard is, by cluster, how long ago its last renewal was observed.
func (l *Liveness) LeaseAges(now time.Time) map[string]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]time.Duration, len(l.leases))
	for cluster, lease := range l.leases {
		out[cluster] = now.Sub(lease.observed)
	}
	return out
}

// Live tells whether this member hears its own heartbeat through the broker.
func (l *Liveness) BrokerWatchIsLive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watchLive
}
