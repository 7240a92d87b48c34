package member

import (
	"maps"
	"slices"
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Demotion takes the precedence from clusters that have been stale for long: the living exporters
// of a service decide about it. Each member lists in the status of its Cluster which ones it
// demotes, and a stale cluster is demoted as soon as one living member lists it. All members watch
// Clusters, so they change at the same time; those that have not read the lease of the listed
// cluster for a while do so at once.
//
// A demoted cluster that returns makes its exports the youngest (see Heartbeat.Yield), so that it
// does not disturb what runs.

// ObserveDemoted records which clusters a member demotes, as received from the watch of Clusters.
func (l *Liveness) ObserveDemoted(member string, demotes []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed.set(member, demotes, now)
}

// ListedByOthers reports whether any other member lists this one as demoted.
func (l *Liveness) ListedByOthers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for member := range l.listed[l.self] {
		if member != l.self {
			return true
		}
	}
	return false
}

// listings are when members began to list clusters as demoted, by cluster and member.
type listings map[string]map[string]time.Time

func (l listings) set(member string, demotes []string, now time.Time) {
	for cluster, by := range l {
		if slices.Contains(demotes, cluster) {
			continue
		}
		if delete(by, member); len(by) == 0 {
			delete(l, cluster)
		}
	}
	for _, cluster := range demotes {
		if l[cluster] == nil {
			l[cluster] = map[string]time.Time{}
		}
		if _, known := l[cluster][member]; !known {
			l[cluster][member] = now
		}
	}
}

// JudgeDemoted decides which clusters are demoted, and returns those for which that changed.
func (l *Liveness) JudgeDemoted(now time.Time) (changed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	demoted := map[string]bool{}
	for cluster, by := range l.listed {
		if !l.mayDemote(cluster, now) {
			continue
		}
		for member := range by {
			if _, stale := l.verdicts[member]; !stale {
				demoted[cluster] = true
			}
		}
	}
	for cluster := range demoted {
		if !l.demoted[cluster] {
			changed = append(changed, cluster)
		}
	}
	for cluster := range l.demoted {
		if !demoted[cluster] {
			changed = append(changed, cluster)
		}
	}
	l.demoted, l.demotedKnown = demoted, true
	slices.Sort(changed)
	return changed
}

// mayDemote reports whether a cluster may lose its precedence: it is stale here too, because
// another member might lie, or it returned a moment ago and its records may still seem to be old.
func (l *Liveness) mayDemote(cluster string, now time.Time) bool {
	lease := l.leases[cluster]
	if lease == nil || cluster == l.self {
		return false
	}
	_, stale := l.verdicts[cluster]
	return stale || l.demoted[cluster] && now.Sub(lease.returned) < lease.Duration
}

// Demoted returns the clusters that have no precedence over living ones.
func (l *Liveness) Demoted() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.demoted)
}

// ToDemote returns the clusters that this member lists as demoted: those that have been stale for
// long, and those that another member demoted, so that they stay demoted without that one. listed
// is what its Cluster lists. After a restart that stays until all leases have been observed:
// otherwise the only living member would give a dead one its precedence back for a moment.
func (l *Liveness) ToDemote(now time.Time, listed []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.demotedKnown {
		return listed
	}
	clusters := maps.Clone(l.demoted)
	for cluster, verdict := range l.verdicts {
		if !l.watchLive {
			break // the cluster may have renewed its lease
		}
		if lease := l.leases[cluster]; lease != nil && now.Sub(verdict.Since) >= objects.DemoteAfter(lease.Duration) {
			clusters[cluster] = true
		}
	}
	return slices.Sorted(maps.Keys(clusters))
}
