package reach

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/internal/objects"
)

// ChooseEndpoints returns at most limit endpoints to connect to: TCP ports of ready endpoints of a
// family, first one of each service. services are the slices of one cluster by service. accepted
// reports whether an address may be used.
func ChooseEndpoints(
	services [][]*discoveryv1.EndpointSlice, family corev1.IPFamily, limit int, accepted func(netip.Addr) bool,
) []netip.AddrPort {
	var perService [][]netip.AddrPort
	for _, list := range services {
		if endpoints := tcpEndpoints(list, family, accepted); len(endpoints) > 0 {
			rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
			perService = append(perService, endpoints)
		}
	}
	var out []netip.AddrPort
	for round := 0; len(out) < limit; round++ {
		more := false
		for _, endpoints := range perService {
			if round < len(endpoints) && len(out) < limit && !slices.Contains(out, endpoints[round]) {
				out = append(out, endpoints[round])
			}
			more = more || round+1 < len(endpoints)
		}
		if !more {
			break
		}
	}
	return out
}

func tcpEndpoints(list []*discoveryv1.EndpointSlice, family corev1.IPFamily, accepted func(netip.Addr) bool) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range list {
		for _, p := range s.Ports {
			port := ptr.Deref(p.Port, 0)
			if ptr.Deref(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP || port <= 0 || port > 65535 {
				continue
			}
			for i := range s.Endpoints {
				if !ptr.Deref(s.Endpoints[i].Conditions.Ready, true) {
					continue
				}
				for _, addr := range objects.ParseAddresses(s.Endpoints[i].Addresses) {
					if objects.FamilyOf(addr) == family && accepted(addr) {
						out = append(out, netip.AddrPortFrom(addr, uint16(port)))
					}
				}
			}
		}
	}
	return out
}
