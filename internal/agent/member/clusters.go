package member

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/addresses"
)

// Clusters holds the Cluster objects of all members: what the admin of the broker grants each, and
// the ranges that each says it has.
type Clusters struct {
	// own is the id of this cluster. Of its own ranges it knows more than its Cluster says.
	own string
	// changed is called with the id of a member that was admitted, removed or granted something
	// else, rangesChanged when the ranges of a member or of this cluster's pods changed.
	changed       func(id string)
	rangesChanged func()
	// demotes is called with what a member lists as demoted.
	demotes func(id string, demoted []string, now time.Time)

	synced func() bool

	mu     sync.RWMutex
	byID   map[string]*v1alpha1.Cluster
	claims *addresses.Claims
}

// WatchClusters returns the Clusters of the broker, updated from its cache.
func WatchClusters(
	ctx context.Context, c cache.Cache, own string,
	changed func(id string), rangesChanged func(), demotes func(id string, demoted []string, now time.Time),
) (*Clusters, error) {
	clusters := &Clusters{
		own: own, changed: changed, rangesChanged: rangesChanged, demotes: demotes,
		byID: map[string]*v1alpha1.Cluster{}, claims: addresses.NewClaims(),
	}
	var err error
	clusters.synced, err = trigger.Handle(ctx, c, &v1alpha1.Cluster{}, trigger.EventHandler[*v1alpha1.Cluster]{
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

// Synced reports whether the Clusters have been listed.
func (c *Clusters) Synced() bool { return c.synced() }

// Len returns how many members are known.
func (c *Clusters) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.byID)
}

// WhyNot returns why a member may not publish an address, or "" if it may.
func (c *Clusters) WhyNot(id string, addr netip.Addr) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.claims.WhyNot(id, addr)
}

func (c *Clusters) set(cluster *v1alpha1.Cluster) {
	c.mu.Lock()
	old := c.byID[cluster.Name]
	if old != nil && old.UID == cluster.UID && old.ResourceVersion == cluster.ResourceVersion {
		c.mu.Unlock() // it was listed again
		return
	}
	c.byID[cluster.Name] = cluster
	grantsChanged := old == nil || old.UID != cluster.UID || old.Generation != cluster.Generation
	rangesChanged := cluster.Name != c.own && (grantsChanged || !sameRanges(&old.Status, &cluster.Status))
	if rangesChanged {
		c.claims.Set(claimsOf(cluster))
	}
	c.mu.Unlock()
	c.demotes(cluster.Name, cluster.Status.Demoted, time.Now())
	if grantsChanged {
		c.changed(cluster.Name)
	}
	if rangesChanged {
		c.rangesChanged()
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
	c.claims.Remove(cluster.Name)
	c.mu.Unlock()
	c.demotes(cluster.Name, nil, time.Now())
	c.changed(cluster.Name)
	c.rangesChanged()
}

// WatchPods makes the ranges of this cluster's own pods known, node by node.
func (c *Clusters) WatchPods(ctx context.Context, local cache.Cache) (synced func() bool, err error) {
	set := func(node *corev1.Node, ranges []netip.Prefix) {
		c.mu.Lock()
		c.claims.Set(addresses.Member{ID: "node/" + node.Name, Here: true, Published: ranges}) // no cluster id has a slash
		c.mu.Unlock()
		c.rangesChanged()
	}
	return trigger.Handle(ctx, local, &corev1.Node{}, trigger.EventHandler[*corev1.Node]{
		Add: func(node *corev1.Node) { set(node, objects.ParsePrefixes(node.Spec.PodCIDRs)) },
		Update: func(before, node *corev1.Node) {
			if !slices.Equal(before.Spec.PodCIDRs, node.Spec.PodCIDRs) {
				set(node, objects.ParsePrefixes(node.Spec.PodCIDRs))
			}
		},
		Delete: func(node *corev1.Node, _ bool) { set(node, nil) },
	})
}

func sameRanges(a, b *v1alpha1.ClusterStatus) bool {
	return equality.Semantic.DeepEqual(a.PodCIDRs, b.PodCIDRs) && equality.Semantic.DeepEqual(a.ServiceCIDRs, b.ServiceCIDRs) &&
		equality.Semantic.DeepEqual(a.NodeCIDRs, b.NodeCIDRs)
}

func claimsOf(cluster *v1alpha1.Cluster) addresses.Member {
	pods := objects.ParsePrefixes(cluster.Status.PodCIDRs)
	return addresses.Member{
		ID: cluster.Name, Admitted: cluster.CreationTimestamp.Time, Fixed: objects.ParsePrefixes(cluster.Spec.EndpointRanges),
		Published: slices.Concat(pods, objects.ParsePrefixes(cluster.Status.ServiceCIDRs), objects.ParsePrefixes(cluster.Status.NodeCIDRs)),
		Pods4:     slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Addr().Is4() }),
		Pods6:     slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Addr().Is6() }),
	}
}
