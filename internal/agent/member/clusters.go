package member

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
)

// Clusters holds the Cluster objects of all members: what the admin of the broker grants each.
type Clusters struct {
	mu   sync.RWMutex
	byID map[string]*v1alpha1.Cluster
	// changed is called with the id of a member that was admitted, removed or granted something
	// else.
	changed func(id string)
}

// WatchClusters returns the Clusters of the broker, updated from its cache.
func WatchClusters(ctx context.Context, c cache.Cache, changed func(id string)) (*Clusters, error) {
	clusters := &Clusters{byID: map[string]*v1alpha1.Cluster{}, changed: changed}
	_, err := trigger.Handle(ctx, c, &v1alpha1.Cluster{}, trigger.EventHandler[*v1alpha1.Cluster]{
		Add:    clusters.set,
		Update: func(_, cluster *v1alpha1.Cluster) { clusters.set(cluster) },
		Delete: clusters.remove,
	})
	return clusters, err
}

// Get returns the Cluster of a member, nil if there is none. It is complete once the member is
// connected: see State.Connected.
func (c *Clusters) Get(id string) *v1alpha1.Cluster {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byID[id]
}

func (c *Clusters) set(cluster *v1alpha1.Cluster) {
	c.mu.Lock()
	old := c.byID[cluster.Name]
	c.byID[cluster.Name] = cluster
	c.mu.Unlock()
	if old == nil || old.UID != cluster.UID || old.Generation != cluster.Generation {
		c.changed(cluster.Name)
	}
}

// remove forgets a member that the admin removed. A Cluster that is absent after the watch was
// interrupted stays known: a broker that comes back empty or older must not end the imports from
// its members. An admin who removes a member deletes its records too.
func (c *Clusters) remove(cluster *v1alpha1.Cluster, observed bool) {
	if !observed {
		return
	}
	c.mu.Lock()
	delete(c.byID, cluster.Name)
	c.mu.Unlock()
	c.changed(cluster.Name)
}
