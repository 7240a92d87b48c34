package agent

import (
	"context"
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/agent/failover"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

const (
	// proxiesFirst is how long the slices of many services wait after a verdict where seamark-proxy
	// takes over on the nodes. The writes of a thousand services, and kube-proxy that follows them,
	// would take the cores and the lock of the kernel's rules just when the proxies need both.
	proxiesFirst = 2 * time.Second
	// manyServices is how many services are written without waiting. A hundred slices cost the API
	// server and kube-proxy a fraction of a second, and nodes on which the proxy has no effect depend
	// on them.
	manyServices = 100
)

// slicesWait returns how long after a verdict the slices of this number of services are written.
// proxies reports whether seamark-proxy takes them over on the nodes.
func slicesWait(proxies bool, services int) time.Duration {
	if proxies && services > manyServices {
		return proxiesFirst
	}
	return 0
}

// addFailover sets up what publishes unreachable clusters and decides their services anew.
func (a *agent) addFailover() {
	store := &failover.Store{Client: a.localDirect}
	p := failover.New()
	p.Load, p.Save, p.Log = store.Load, store.Save, a.Log.WithName("failover")
	p.IsStale = func(cluster string) bool { return a.state.Liveness.Stale()[cluster] }
	p.Changed = func(clusters []string) {
		a.countFailovers()
		services := a.sources.importedFrom(clusters)
		p.Log.Info("deciding anew which endpoints of clusters are used", "members", clusters, "services", len(services))
		follow := func() { a.failedOver.Push(services...) }
		if wait := slicesWait(a.FailoverProxy, len(services)); wait > 0 {
			time.AfterFunc(wait, follow)
		} else {
			follow()
		}
	}
	a.failover = p
}

// restoreUnreachable reads which clusters were unreachable for an earlier leader, and reports
// whether that is done.
func (a *agent) restoreUnreachable(ctx context.Context) bool {
	if a.failover == nil || a.unreachableRestored.Load() {
		return true
	}
	unreachable, err := a.failover.Restore(ctx)
	if err != nil {
		a.Log.Error(err, "cannot read which clusters were unreachable before this agent became active; retrying")
		return false // this cluster's API server does not answer; without it nothing can be done anyway
	}
	a.prober.Restore(unreachable)
	a.unreachableRestored.Store(true)
	return true
}

// reachDecided reports whether the beacons of all stale clusters have had the time to answer: after
// a restart, a cluster that is silent but serves must not lose its endpoints for a moment.
func (a *agent) reachDecided() bool {
	if a.failover == nil || a.state.Judged() {
		return true
	}
	stale := a.state.Liveness.Stale()
	for cluster := range stale {
		if !a.state.Known() || a.prober.Undecided(cluster) {
			return false
		}
	}
	used := a.reachStates()
	for _, r := range a.prober.Snapshot() {
		if stale[r.Cluster] && used.Of(reachable.Key{Cluster: r.Cluster, Family: r.Family}) != r.State {
			return false // its state is being published
		}
	}
	return true
}

// reachStates returns which clusters are reached, as far as that is published.
func (a *agent) reachStates() objects.ReachStates { return a.failover.States() }

// checkUnreachable compares the property that lists unreachable clusters with what was published.
func (a *agent) checkUnreachable(ctx context.Context) error {
	if a.failover == nil {
		return nil
	}
	property := reachable.Property(nil)
	have, err := index.GetOrNil(ctx, a.manager.GetClient(), client.ObjectKeyFromObject(property), property)
	if err != nil {
		return err
	}
	value := ""
	if have != nil {
		value = have.Spec.Value
	}
	a.failover.Compare(value)
	return nil
}

// failoverCounter counts the clusters whose endpoints this one stopped using.
type failoverCounter struct {
	mu      sync.Mutex
	counted map[string]imports.Usability // nil before the first call
}

// update calls count for each cluster that was usable when update was called before.
func (c *failoverCounter) update(unusable map[string]imports.Usability, count func(cause imports.Usability)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cluster, cause := range unusable {
		if _, known := c.counted[cluster]; !known && c.counted != nil {
			count(cause)
		}
	}
	c.counted = maps.Clone(unusable)
}

// countFailovers counts failovers since it was called before. Those of an earlier leader do not
// count again.
func (a *agent) countFailovers() {
	if a.failover == nil || !a.state.Judged() {
		return
	}
	reached, stale := a.reachStates(), a.state.Liveness.Stale()
	unusable := map[string]imports.Usability{}
	for _, cluster := range a.sources.clusters() {
		for _, family := range a.facts.Families {
			usability := imports.UsabilityOf(reachable.Key{Cluster: cluster, Family: family}, reached, stale)
			if usability != imports.Usable && unusable[cluster] != imports.Unreachable {
				unusable[cluster] = usability
			}
		}
	}
	a.failovers.update(unusable, func(cause imports.Usability) { a.metrics.Failovers.WithLabelValues(string(cause)).Inc() })
}
