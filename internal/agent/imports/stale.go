package imports

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// servedPort is a port in one family: what a client connects to. A slice without ports counts as
// the one port with no protocol.
type servedPort struct {
	family   discoveryv1.AddressType
	name     string
	protocol corev1.Protocol
}

func (p servedPort) String() string {
	if p.name == "" {
		return fmt.Sprintf("the unnamed port (%s)", p.family)
	}
	return fmt.Sprintf("%s (%s)", p.name, p.family)
}

func portsOf(s *discoveryv1.EndpointSlice) []servedPort {
	if len(s.Ports) == 0 {
		return []servedPort{{family: s.AddressType}}
	}
	out := make([]servedPort, len(s.Ports))
	for i, p := range s.Ports {
		out[i] = servedPort{s.AddressType, ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP)}
	}
	return out
}

// keptStale is what is kept of stale clusters.
type keptStale struct {
	clusters []string
	// ports are those that are kept, if other ports of the same clusters are dropped.
	ports []string
}

// dropStale returns the slices without what stale clusters serve, as far as another cluster serves
// it too: the same port in the same family. The slices are those that this cluster would import or
// holds, so ports that lost a conflict and refused addresses do not count as served.
func dropStale(in Input, imported []*discoveryv1.EndpointSlice) (out []*discoveryv1.EndpointSlice, kept keptStale) {
	served := map[servedPort]bool{}
	for _, s := range slices.Concat(imported, in.HeldSlices) {
		if !in.Stale[s.Labels[mcsv1beta1.LabelSourceCluster]] && objects.HasReadyEndpoint(s) {
			for _, p := range portsOf(s) {
				served[p] = true
			}
		}
	}
	dropped := false
	for _, s := range imported {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		if !in.Stale[source] {
			out = append(out, s)
			continue
		}
		if in.StaleEndpoints == v1alpha1.StaleEndpointsRemove {
			continue
		}
		before := len(s.Ports)
		left := keepUnserved(s, served)
		dropped = dropped || !left || len(s.Ports) < before
		if !left {
			continue
		}
		out = append(out, s)
		if len(s.Endpoints) > 0 {
			kept.clusters = append(kept.clusters, source)
			for _, p := range portsOf(s) {
				kept.ports = append(kept.ports, p.String())
			}
		}
	}
	kept.clusters, kept.ports = sortedSet(kept.clusters), sortedSet(kept.ports)
	if !dropped {
		kept.ports = nil
	}
	return out, kept
}

// keepUnserved removes the served ports from a slice, and reports whether any are left.
func keepUnserved(s *discoveryv1.EndpointSlice, served map[servedPort]bool) bool {
	ports := portsOf(s)
	if len(s.Ports) == 0 {
		return !served[ports[0]]
	}
	unserved := s.Ports[:0]
	for i, p := range ports {
		if !served[p] {
			unserved = append(unserved, s.Ports[i])
		}
	}
	s.Ports = unserved
	return len(unserved) > 0
}

func sortedSet(in []string) []string {
	slices.Sort(in)
	return slices.Compact(in)
}

func (k keptStale) String() string {
	subject, possessive := "cluster "+enumerate(k.clusters)+" has", "its"
	if len(k.clusters) > 1 {
		subject, possessive = "clusters "+enumerate(k.clusters)+" have", "their"
	}
	what, why := "", "this service"
	switch len(k.ports) {
	case 0:
	case 1:
		what, why = " for "+k.ports[0], "that port"
	default:
		what, why = " for "+enumerate(k.ports), "those ports"
	}
	return fmt.Sprintf("%s not been heard from; %s last known endpoints are kept%s, because no other cluster serves %s",
		subject, possessive, what, why)
}
