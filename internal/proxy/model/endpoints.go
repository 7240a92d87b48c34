package model

import (
	"encoding/json"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// candidate is an endpoint of one service port.
type candidate struct {
	address netip.AddrPort
	ready   bool
	// terminating is set if the endpoint terminates but still serves: it is used if no endpoint is
	// ready.
	terminating bool
	// inTier is set for each tier to which the endpoint belongs.
	inTier [anywhere + 1]bool
	// maybeLocal is set if the endpoint may be on this node, so that it may connect to itself.
	maybeLocal bool
}

func (c candidate) usable() bool { return c.ready || c.terminating }

// candidates returns the endpoints of one family by port, each address once and sorted by address,
// so that the order of the objects does not matter.
func (b *builder) candidates(all []*discoveryv1.EndpointSlice, ipv6 bool, ports []servicePort) map[portID][]candidate {
	family := discoveryv1.AddressTypeIPv4
	if ipv6 {
		family = discoveryv1.AddressTypeIPv6
	}
	out := map[portID][]candidate{}
	for _, s := range all {
		if s.AddressType != family {
			continue
		}
		for _, p := range b.slicePorts(s, ports) {
			out[p.id] = append(out[p.id], b.endpoints(s, p.number, ipv6)...)
		}
	}
	for id, list := range out {
		slices.SortFunc(list, func(x, y candidate) int { return x.address.Compare(y.address) })
		out[id] = mergeDuplicates(list)
	}
	return out
}

// mergeDuplicates merges candidates with the same address. A pod that moves from one slice to
// another is in both for a moment.
func mergeDuplicates(sorted []candidate) []candidate {
	out := sorted[:0]
	for _, c := range sorted {
		if n := len(out); n == 0 || out[n-1].address != c.address {
			out = append(out, c)
			continue
		}
		last := &out[len(out)-1]
		last.ready, last.terminating, last.maybeLocal = last.ready || c.ready, last.terminating || c.terminating, last.maybeLocal || c.maybeLocal
		for tier := range c.inTier {
			last.inTier[tier] = last.inTier[tier] || c.inTier[tier]
		}
	}
	return out
}

type slicePort struct {
	id     portID
	number uint16
}

// slicePorts returns the ports of a slice that the service has too, by name and protocol. A slice
// does not have a port that lost a conflict.
func (b *builder) slicePorts(s *discoveryv1.EndpointSlice, ports []servicePort) []slicePort {
	var out []slicePort
	for i := range s.Ports {
		p := &s.Ports[i]
		protocol, ok := protocolOf(ptr.Deref(p.Protocol, corev1.ProtocolTCP))
		id := portID{ptr.Deref(p.Name, ""), protocol}
		if !ok || !slices.ContainsFunc(ports, func(sp servicePort) bool { return sp.id == id }) {
			continue
		}
		number := ptr.Deref(p.Port, 0)
		if number < 1 || number > 65535 {
			b.refuse("endpoint port %d of slice %s is not between 1 and 65535", number, s.Name)
			continue
		}
		out = append(out, slicePort{id, uint16(number)})
	}
	return out
}

func (b *builder) endpoints(s *discoveryv1.EndpointSlice, port uint16, ipv6 bool) []candidate {
	source := s.Labels[mcsv1beta1.LabelSourceCluster]
	regions := b.regions(s)
	out := make([]candidate, 0, len(s.Endpoints))
	seen := make(map[netip.Addr]struct{}, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		addr, ok := b.address(s, e, ipv6)
		if !ok {
			continue
		}
		if _, twice := seen[addr]; twice {
			b.refuse("endpoint %s is in slice %s more than once", addr, s.Name)
		}
		seen[addr] = struct{}{}
		ready := ptr.Deref(e.Conditions.Ready, true)
		c := candidate{
			address: netip.AddrPortFrom(addr, port), ready: ready,
			terminating: !ready && ptr.Deref(e.Conditions.Serving, ready) && ptr.Deref(e.Conditions.Terminating, false),
		}
		b.setTiers(&c, e, source, regions)
		out = append(out, c)
	}
	return out
}

// address returns an endpoint's first address. The others are aliases of the same pod.
func (b *builder) address(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, ipv6 bool) (netip.Addr, bool) {
	if len(e.Addresses) == 0 {
		b.refuse("an endpoint of slice %s has no address", s.Name)
		return netip.Addr{}, false
	}
	addr, problem := parseAddress(e.Addresses[0])
	switch {
	case problem != "":
		b.refuse("endpoint %.64q of slice %s %s", e.Addresses[0], s.Name, problem)
	case addr.Is6() != ipv6:
		b.refuse("endpoint %s of slice %s is not %s", addr, s.Name, s.AddressType)
	default:
		return addr, true
	}
	return netip.Addr{}, false
}

// setTiers sets the tiers of an endpoint. Node names are unique only within a cluster; zones and
// regions are the same in all clusters.
func (b *builder) setTiers(c *candidate, e *discoveryv1.Endpoint, source string, regions func(node string) string) {
	inThisCluster := source != "" && source == b.here.Cluster
	node, zone, region := ptr.Deref(e.NodeName, ""), ptr.Deref(e.Zone, ""), regions(ptr.Deref(e.NodeName, ""))
	c.inTier[sameNode] = inThisCluster && node != "" && node == b.here.Node
	c.inTier[sameZone] = zone != "" && zone == b.here.Zone
	c.inTier[sameRegion] = region != "" && region == b.here.Region
	c.inTier[sameCluster] = inThisCluster
	c.inTier[anywhere] = true
	// If the own cluster's id is unknown, any endpoint may be in this cluster.
	maybeInThisCluster := inThisCluster || b.here.Cluster == "" || source == ""
	c.maybeLocal = maybeInThisCluster && (node == "" || b.here.Node == "" || node == b.here.Node)
}

// regions returns a function for the region of a node of the slice.
func (b *builder) regions(s *discoveryv1.EndpointSlice) func(node string) string {
	defaultRegion := s.Annotations[v1alpha1.AnnotationRegion]
	byNode := map[string]string{}
	if text := s.Annotations[v1alpha1.AnnotationNodeRegions]; text != "" {
		if err := json.Unmarshal([]byte(text), &byNode); err != nil {
			b.refuse("annotation %s of slice %s is not a JSON object of strings", v1alpha1.AnnotationNodeRegions, s.Name)
		}
	}
	return func(node string) string {
		if region, ok := byNode[node]; ok {
			return region
		}
		return defaultRegion
	}
}
