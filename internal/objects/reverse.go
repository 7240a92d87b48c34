package objects

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Shorter ranges are left out of ForwardedRanges: they hold more than one organisation's addresses,
// and no cluster has that many pods.
const shortestForwardedIPv4, shortestForwardedIPv6 = 8, 16

// ForwardedRanges returns the ranges whose reverse names the DNS of a cluster should forward to
// seamark-dns: those of clusterset IPs, and those of other members' pods as far as they are known,
// in a fixed order. own are the ranges of the cluster itself. A member may publish any range, so
// one that overlaps with own is left out: the cluster's own DNS keeps the names of its own
// addresses.
func ForwardedRanges(set *v1alpha1.ClusterSet, members []v1alpha1.Cluster, clusterID string, own []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	if set != nil {
		out = ParsePrefixes(set.Spec.ClusterSetIP.Ranges)
	}
	for i := range members {
		m := &members[i]
		if m.Name == clusterID {
			continue
		}
		ranges := m.Spec.EndpointRanges // what the admin fixed decides
		if len(ranges) == 0 {
			ranges = m.Status.PodCIDRs
		}
		for _, r := range ParsePrefixes(ranges) {
			shortest := shortestForwardedIPv6
			if r.Addr().Is4() {
				shortest = shortestForwardedIPv4
			}
			if r.Bits() >= shortest && !slices.ContainsFunc(own, r.Overlaps) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// OwnRanges returns the ranges of a cluster's pods and of its ClusterIPs, and the addresses of its
// nodes.
func OwnRanges(nodes []corev1.Node, services []netip.Prefix) []netip.Prefix {
	own := slices.Clone(services)
	for i := range nodes {
		own = append(own, ParsePrefixes(nodes[i].Spec.PodCIDRs)...)
		for _, a := range nodes[i].Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				own = append(own, netip.PrefixFrom(addr, addr.BitLen()))
			}
		}
	}
	return own
}
