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
	if why := addresses.Unusable(addr); why != "" || source == in.ClusterID {
		return why // a cluster's own endpoints are in its own ranges
	}
	switch {
	case in.IsNodeAddress(addr):
		return "is the address of a node of this cluster"
	case addresses.Contain(in.ServiceRanges, addr):
		return "is in the range of this cluster's own Services: it would reach another Service, or none"
	}
	return in.WhyNot(source, addr)
}
