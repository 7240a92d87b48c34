// Package member is this cluster as a member of its clusterset: its heartbeat, its view of the
// other members' liveness, its identity objects, its credential and its settings.
package member

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Liveness decides which clusters are stale: those whose last renewal was observed too long ago, on
// this observer's own clock. It only decides while the observer's own watch of the broker is live,
// that is, while this member's own renewals are observed through it. Clocks of members are never
// compared: they may be hours apart. The leases of other members are read, not watched: see
// LeaseReader.
//
// A verdict names the renewal after which the cluster was silent. It is valid as long as the lease
// has that renewal, also for another process: VerdictStore hands the verdicts to the next leader.
type Liveness struct {
	self string

	mu                 sync.Mutex
	leases             map[string]*lease
	ownRenewalObserved time.Time
	watchLive          bool
	verdicts           map[string]Verdict
	read               map[string]time.Time // when leases of others were last read
	lastTurn           time.Time            // when one that is not in doubt was last read
	listed             listings
	demoted            map[string]bool
	judged             bool // Judge has been called
	demotedKnown       bool // JudgeDemoted has been called
}

type lease struct {
	LastRenewal
	observed time.Time // when the renewal was observed here
	returned time.Time // when the last verdict about the cluster ended
}

// LastRenewal is the last renewal of a lease.
type LastRenewal struct {
	// Time is as the lease's owner wrote it: only whether it changed matters.
	Time time.Time
	// Duration is how long the lease lasts.
	Duration time.Duration
	// Version is the resource version of the lease.
	Version int64
}

// Verdict is the decision that a cluster is stale.
type Verdict struct {
	// RenewTime is the cluster's last renewal, as it wrote it. Another renewal ends the verdict.
	RenewTime time.Time `json:"renewTime"`
	// Since is when this cluster decided, on its own clock.
	Since time.Time `json:"since"`
}

// NewLiveness returns the Liveness of the member self. No cluster is stale until its lease has been
// watched for its duration, or a verdict of an earlier process is adopted.
func NewLiveness(self string) *Liveness {
	return &Liveness{
		self: self, leases: map[string]*lease{}, verdicts: map[string]Verdict{}, read: map[string]time.Time{},
		listed: listings{}, demoted: map[string]bool{},
	}
}

// Observe records the lease of another cluster as it was read, or this member's own as received
// from the watch. A lease that is older than the one observed before is of a broker that was
// restored from a backup. For a stale cluster that is no renewal.
func (l *Liveness) Observe(cluster string, renewal LastRenewal, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read[cluster] = now
	known := l.leases[cluster]
	if known != nil && known.Time.Equal(renewal.Time) {
		known.LastRenewal = renewal
		return
	}
	l.leases[cluster] = &lease{LastRenewal: renewal, observed: now}
	if cluster == l.self {
		l.ownRenewalObserved = now
	}
	if known == nil {
		return
	}
	l.leases[cluster].returned = known.returned
	if verdict, stale := l.verdicts[cluster]; stale && renewal.Version < known.Version {
		verdict.RenewTime = renewal.Time
		l.verdicts[cluster] = verdict
	}
}

// Forget drops a cluster that left or was removed, and its records with it.
func (l *Liveness) Forget(cluster string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, cluster)
	l.read[cluster] = now
}

// Judge returns the verdicts as they are now, and the clusters for which that changed. It must not
// be called before all leases have been observed once. The verdicts count when they are adopted, so
// that they can be stored first.
func (l *Liveness) Judge(now time.Time) (verdicts map[string]Verdict, changed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepRestored()
	verdicts = maps.Clone(l.verdicts)
	for cluster, verdict := range l.verdicts {
		lease := l.leases[cluster]
		if lease != nil && lease.Time.Equal(verdict.RenewTime) {
			continue
		}
		if lease != nil {
			lease.returned = now
		}
		delete(verdicts, cluster)
		changed = append(changed, cluster)
	}
	wasLive := l.watchLive
	own := l.leases[l.self]
	l.watchLive = own != nil && now.Sub(l.ownRenewalObserved) <= own.Duration/2
	if !l.watchLive {
		return verdicts, changed // our own watch is down, so silence proves nothing
	}
	for cluster, lease := range l.leases {
		if _, stale := l.verdicts[cluster]; stale || cluster == l.self {
			continue
		}
		if !wasLive {
			lease.observed = now // renewals may have been missed while the watch was down
		}
		if l.read[cluster].Sub(lease.observed) > lease.Duration {
			verdicts[cluster] = Verdict{RenewTime: lease.Time, Since: now}
			changed = append(changed, cluster)
		}
	}
	slices.Sort(changed)
	return verdicts, changed
}

// keepRestored keeps the verdicts of an earlier process about clusters whose leases are older than
// that: the broker was restored meanwhile, which is no sign of life. Only the first Judge sees such
// leases; later ones come through Observe.
func (l *Liveness) keepRestored() {
	if l.judged {
		return
	}
	l.judged = true
	for cluster, verdict := range l.verdicts {
		if lease := l.leases[cluster]; lease != nil && lease.Time.Before(verdict.RenewTime) {
			verdict.RenewTime = lease.Time
			l.verdicts[cluster] = verdict
		}
	}
}

// Adopt makes verdicts count: those that Judge returned, or, before the first Judge, those of an
// earlier process. Judge drops the ones whose cluster has renewed its lease since.
func (l *Liveness) Adopt(verdicts map[string]Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdicts = make(map[string]Verdict, len(verdicts))
	maps.Copy(l.verdicts, verdicts)
}

// Stale returns the clusters whose lease expired.
func (l *Liveness) Stale() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale := make(map[string]bool, len(l.verdicts))
	for cluster := range l.verdicts {
		stale[cluster] = true
	}
	return stale
}

// StaleSince returns since when the stale clusters are stale, on this cluster's clock. A restart of
// the agent does not change it.
func (l *Liveness) StaleSince() map[string]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := make(map[string]time.Time, len(l.verdicts))
	for cluster, verdict := range l.verdicts {
		since[cluster] = verdict.Since
	}
	return since
}

// LeaseAges returns, by cluster, how old its last renewal was when its lease was last read. For a
// stale cluster it is at least how long ago that was decided.
func (l *Liveness) LeaseAges(now time.Time) map[string]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]time.Duration, len(l.leases))
	for cluster, lease := range l.leases {
		out[cluster] = max(0, l.read[cluster].Sub(lease.observed))
		if verdict, stale := l.verdicts[cluster]; stale {
			out[cluster] = max(out[cluster], now.Sub(verdict.Since))
		}
	}
	return out
}

// BrokerWatchIsLive reports whether this member observes its own renewals through the broker.
func (l *Liveness) BrokerWatchIsLive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watchLive
}
