package imports

import (
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/addresses"
)

// whyRefused returns why an endpoint of a cluster is not imported, or "" if it is. A compromised
// member could otherwise send clients in other clusters to their own node, to their cloud's
// metadata service, to a Service or pod of their own cluster, or to a third cluster.
func whyRefused(e *discoveryv1.Endpoint, family discoveryv1.AddressType, source string, in Input) string {
	if len(e.Addresses) == 0 {
		return fmt.Sprintf("an endpoint from cluster %s has no address", source)
	}
	for _, text := range e.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Sprintf("%.64q from cluster %s is not an IP address", text, source)
		}
		if why := whyAddressRefused(addr, family, source, in); why != "" {
			return fmt.Sprintf("%s from cluster %s %s", addr, source, why)
		}
	}
	return ""
}

func whyAddressRefused(addr netip.Addr, family discoveryv1.AddressType, source string, in Input) string {
	if string(objects.FamilyOf(addr)) != string(family) {
		return "is not " + string(family)
	}
	return AddressCheck{in.ClusterID, in.ServiceRanges, in.IsNodeAddress, in.WhyNot}.WhyRefused(addr, source)
}

// AddressCheck decides which addresses of other clusters this one uses.
type AddressCheck struct {
	// ClusterID is the id of this cluster, ServiceRanges are those of its own ClusterIPs.
	ClusterID     string
	ServiceRanges []netip.Prefix
	// IsNodeAddress and WhyNot are those of Input.
	IsNodeAddress func(netip.Addr) bool
	WhyNot        func(cluster string, addr netip.Addr) string
}

// WhyRefused returns why an address that a cluster publishes is not used here, or "" if it is.
func (c AddressCheck) WhyRefused(addr netip.Addr, source string) string {
	if why := addresses.Unusable(addr); why != "" || source == c.ClusterID {
		return why // a cluster's own endpoints are in its own ranges
	}
	switch {
	case c.IsNodeAddress(addr):
		return "is the address of a node of this cluster"
	case addresses.Contain(c.ServiceRanges, addr):
		return "is in the range of this cluster's own Services: it would reach another Service, or none"
	}
	return c.WhyNot(source, addr)
}
