// Package member is this cluster as a member of its clusterset: its heartbeat, its view of the
// other members' liveness, its identity objects, its credential and its settings.
package member

import (
	"sync"
	"time"
)

// Liveness decides which clusters are stale: those whose last renewal was observed too long ago, on
// this observer's own clock. It only decides while the observer's own watch of the broker is live,
// that is, while this member's own renewals are observed through it. Clocks of members are never
// compared: they may be hours apart.
type Liveness struct {
	self string

	mu                 sync.Mutex
	leases             map[string]*lease
	ownRenewalObserved time.Time
	watchLive          bool
	stale              map[string]bool
}

type lease struct {
	renewTime time.Time // as its owner wrote it: only whether it changed matters
	observed  time.Time // when the change was observed here
	duration  time.Duration
}

// NewLiveness returns the Liveness of the member self. No cluster is stale until its lease has been
// watched for its duration.
func NewLiveness(self string) *Liveness {
	return &Liveness{self: self, leases: map[string]*lease{}, stale: map[string]bool{}}
}

// Observe records a cluster's lease as received from the watch.
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

// Forget drops a cluster whose lease was deleted: its member was removed, and its records with it.
func (l *Liveness) Forget(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, cluster)
}

// Update decides which clusters are stale now and returns those for which that changed.
func (l *Liveness) Update(now time.Time) (changed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasLive := l.watchLive
	own := l.leases[l.self]
	l.watchLive = own != nil && now.Sub(l.ownRenewalObserved) <= own.duration/2
	if !l.watchLive {
		return nil // our own watch is down, so silence proves nothing; keep the last verdict
	}
	next := map[string]bool{}
	for cluster, lease := range l.leases {
		if !wasLive && !l.stale[cluster] {
			lease.observed = now // renewals may have been missed while the watch was down
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

// Stale returns the clusters whose lease expired. The map must not be changed.
func (l *Liveness) Stale() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stale
}

// LeaseAges returns, by cluster, how long ago its last renewal was observed.
func (l *Liveness) LeaseAges(now time.Time) map[string]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]time.Duration, len(l.leases))
	for cluster, lease := range l.leases {
		out[cluster] = now.Sub(lease.observed)
	}
	return out
}

// BrokerWatchIsLive reports whether this member observes its own renewals through the broker.
func (l *Liveness) BrokerWatchIsLive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watchLive
}
