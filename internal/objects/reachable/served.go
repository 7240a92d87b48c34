package reachable

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// ServedPort is a port in one family: what a client connects to. A slice without ports counts as
// the one port with no protocol.
type ServedPort struct {
	Family   discoveryv1.AddressType
	Name     string
	Protocol corev1.Protocol
}

func (p ServedPort) String() string {
	if p.Name == "" {
		return fmt.Sprintf("the unnamed port (%s)", p.Family)
	}
	return fmt.Sprintf("%s (%s)", p.Name, p.Family)
}

// PortsOf returns the ports of a slice, in their order.
func PortsOf(s *discoveryv1.EndpointSlice) []ServedPort {
	if len(s.Ports) == 0 {
		return []ServedPort{{Family: s.AddressType}}
	}
	out := make([]ServedPort, len(s.Ports))
	for i, p := range s.Ports {
		out[i] = ServedPort{s.AddressType, ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP)}
	}
	return out
}

// ServedPorts are the ports that clusters which can be used serve.
type ServedPorts map[ServedPort]bool

// Add adds the ports of a slice, if it has a ready endpoint.
func (served ServedPorts) Add(s *discoveryv1.EndpointSlice) {
	if HasReadyEndpoint(s) {
		for _, p := range PortsOf(s) {
			served[p] = true
		}
	}
}

// LeaveOut returns a slice without the ports that are served: nil if none are left, the slice
// itself if all are. It does not change the slice.
func (served ServedPorts) LeaveOut(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	ports := PortsOf(s)
	if len(s.Ports) == 0 {
		if served[ports[0]] {
			return nil
		}
		return s
	}
	var unserved []discoveryv1.EndpointPort
	for i, p := range ports {
		if !served[p] {
			unserved = append(unserved, s.Ports[i])
		}
	}
	switch len(unserved) {
	case 0:
		return nil
	case len(s.Ports):
		return s
	}
	left := *s
	left.Ports = unserved
	return &left
}

// LeaveOut returns the slices of a service without what unreachable clusters serve, as
// far as another cluster serves it too: the same port in the same family. What no other cluster
// serves stays. It changes neither the list nor its slices.
func LeaveOut(all []*discoveryv1.EndpointSlice, unreachable Unreachables) []*discoveryv1.EndpointSlice {
	isUnreachable := func(s *discoveryv1.EndpointSlice) bool { return unreachable.Has(SourceOf(s)) }
	if len(unreachable) == 0 || !slices.ContainsFunc(all, isUnreachable) {
		return all
	}
	served := ServedPorts{}
	for _, s := range all {
		if !isUnreachable(s) {
			served.Add(s)
		}
	}
	var out []*discoveryv1.EndpointSlice
	for _, s := range all {
		if isUnreachable(s) {
			s = served.LeaveOut(s)
		}
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// SourceOf returns from which cluster an imported slice is, and its family.
func SourceOf(s *discoveryv1.EndpointSlice) Key {
	return Key{s.Labels[mcsv1beta1.LabelSourceCluster], corev1.IPFamily(s.AddressType)}
}

// HasPort reports whether a slice has a port for which is returns true, or no ports at all, as
// those of some headless Services.
func HasPort(s *discoveryv1.EndpointSlice, is func(name string, protocol corev1.Protocol) bool) bool {
	return len(s.Ports) == 0 || slices.ContainsFunc(PortsOf(s), func(p ServedPort) bool { return is(p.Name, p.Protocol) })
}

// HasReadyEndpoint reports whether any of these slices has a ready endpoint.
func HasReadyEndpoint(endpointSlices ...*discoveryv1.EndpointSlice) bool {
	for _, s := range endpointSlices {
		for i := range s.Endpoints {
			// An absent condition means ready (EndpointConditions in the discovery API).
			if ptr.Deref(s.Endpoints[i].Conditions.Ready, true) {
				return true
			}
		}
	}
	return false
}
