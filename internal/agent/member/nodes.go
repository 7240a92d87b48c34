package member

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Nodes holds what exports and imports need of this cluster's nodes: their regions, their addresses
// and the ranges of their pods.
type Nodes struct {
	mu            sync.RWMutex
	byName        map[string]node
	addressCounts map[netip.Addr]int
	synced        func() bool
	changed       func()
}

type node struct {
	region    string
	addresses []netip.Addr
	podCIDRs  []string
}

func (n node) equal(other node) bool {
	return n.region == other.region && slices.Equal(n.addresses, other.addresses) && slices.Equal(n.podCIDRs, other.podCIDRs)
}

// StripNode reduces a Node to what Nodes needs, before it is cached: a Node is large, and a cluster
// may have thousands.
func StripNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{}
	slim.Name, slim.ResourceVersion, slim.UID = n.Name, n.ResourceVersion, n.UID
	if region := n.Labels[corev1.LabelTopologyRegion]; region != "" {
		slim.Labels = map[string]string{corev1.LabelTopologyRegion: region}
	}
	slim.Spec.PodCIDRs = n.Spec.PodCIDRs
	slim.Status.Addresses = n.Status.Addresses
	return slim, nil
}

// WatchNodes returns a Nodes that is updated from c. It calls changed when a node is added or
// deleted and when one changes its region, its addresses or the ranges of its pods: what was
// exported and imported before is checked again then.
func WatchNodes(ctx context.Context, c cache.Cache, changed func()) (*Nodes, error) {
	n := &Nodes{byName: map[string]node{}, addressCounts: map[netip.Addr]int{}, changed: changed}
	var err error
	n.synced, err = Watch(ctx, c, &corev1.Node{}, func(observed *corev1.Node, deleted bool) {
		if deleted {
			n.replace(observed.Name, nil)
		} else {
			n.set(observed)
		}
	})
	return n, err
}

// Synced reports whether all nodes are known.
func (n *Nodes) Synced() bool { return n.synced() }

func (n *Nodes) set(observed *corev1.Node) {
	entry := node{region: observed.Labels[corev1.LabelTopologyRegion], podCIDRs: observed.Spec.PodCIDRs}
	for _, a := range observed.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			entry.addresses = append(entry.addresses, addr)
		}
	}
	n.replace(observed.Name, &entry)
}

func (n *Nodes) replace(name string, entry *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, known := n.byName[name]; known != (entry != nil) || known && !old.equal(*entry) {
		defer n.changed()
	}
	for _, addr := range n.byName[name].addresses {
		if n.addressCounts[addr]--; n.addressCounts[addr] == 0 {
			delete(n.addressCounts, addr)
		}
	}
	delete(n.byName, name)
	if entry == nil {
		return
	}
	n.byName[name] = *entry
	for _, addr := range entry.addresses {
		n.addressCounts[addr]++
	}
}

// RegionOf returns the region of a node, or "" if it is unknown.
func (n *Nodes) RegionOf(name string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byName[name].region
}

// IsNode reports whether this cluster has a node of that name.
func (n *Nodes) IsNode(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, known := n.byName[name]
	return known
}

// IsAddress reports whether an address belongs to a node of this cluster.
func (n *Nodes) IsAddress(addr netip.Addr) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.addressCounts[addr] > 0
}
