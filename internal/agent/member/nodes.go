package member

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Nodes knows of this cluster's nodes what exports and imports need: their regions, their addresses, their pods' ranges.
type Nodes struct {
	mu     sync.RWMutex
	byName map[string]node
	addressCounts map[netip.Addr]int
	synced toolscache.InformerSynced
	// moved is called when a node that was known changed its region.
	regionChanged func()
}

type node struct {
	region    string
	addresses []netip.Addr
	podCIDRs  []string
}

// StripNode reduces a Node to what Nodes needs before it is cached: a Node is large, and there may be thousands.
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

// WatchNodes returns a Nodes that follows c and calls moved when a node changes its region, which is rare.
func WatchNodes(ctx context.Context, c cache.Cache, moved func()) (*Nodes, error) {
	n := &Nodes{byName: map[string]node{}, addressCounts: map[netip.Addr]int{}, regionChanged: moved}
	informer, err := c.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    n.set,
		UpdateFunc: func(_, obj any) { n.set(obj) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if gone, ok := obj.(*corev1.Node); ok {
				n.replace(gone.Name, nil)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	n.synced = registration.HasSynced
	return n, nil
}

// Synced tells whether all nodes are known.
func (n *Nodes) Synced() bool { return n.synced() }

func (n *Nodes) set(obj any) {
	seen, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	entry := node{region: seen.Labels[corev1.LabelTopologyRegion], podCIDRs: seen.Spec.PodCIDRs}
	for _, a := range seen.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			entry.addresses = append(entry.addresses, addr)
		}
	}
	n.replace(seen.Name, &entry)
}

func (n *Nodes) replace(name string, entry *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, known := n.byName[name]; known && entry != nil && old.region != entry.region {
		defer n.regionChanged()
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

// RegionOf is the region of a node, "" where it is unknown.
func (n *Nodes) RegionOf(name string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byName[name].region
}

// IsNode tells whether this cluster has a node of that name.
func (n *Nodes) IsNode(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, known := n.byName[name]
	return known
}

// IsAddress tells whether an address is one of this cluster's nodes'.
func (n *Nodes) IsAddress(addr netip.Addr) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.addressCounts[addr] > 0
}

// PodCIDRs are the ranges of this cluster's pods as its nodes tell them, sorted, at most limit of them.
func (n *Nodes) PodCIDRs(limit int) []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var out []string
	for _, entry := range n.byName {
		out = append(out, entry.podCIDRs...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), limit)]
}
