package member

import (
	"net/netip"

	"go4.org/netipx"

	"github.com/seamark-dev/seamark/internal/objects"
)

// joined returns ranges that contain the same addresses as the given ones and are as few as
// possible, sorted; at most limit of them.
func joined(ranges []netip.Prefix, limit int) []string {
	var builder netipx.IPSetBuilder
	for _, r := range ranges {
		builder.AddPrefix(r)
	}
	set, err := builder.IPSet()
	if err != nil {
		return nil // only for ranges that are not valid, which ParsePrefix does not return
	}
	var out []string
	for _, r := range set.Prefixes()[:min(len(set.Prefixes()), limit)] {
		out = append(out, r.String())
	}
	return out
}

// PodCIDRs returns the ranges of this cluster's pods as specified in its Nodes, at most limit of
// them.
func (n *Nodes) PodCIDRs(limit int) []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var out []netip.Prefix
	for _, entry := range n.byName {
		out = append(out, objects.ParsePrefixes(entry.podCIDRs)...)
	}
	return joined(out, limit)
}

// NodeCIDRs returns the addresses of this cluster's nodes as ranges, at most limit of them. It
// leaves out addresses that no endpoint can have.
func (n *Nodes) NodeCIDRs(limit int) []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var out []netip.Prefix
	for addr := range n.addressCounts {
		out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return joined(out, limit)
}
