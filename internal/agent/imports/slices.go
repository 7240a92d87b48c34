package imports

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// importSlices turns the broker's slices into this cluster's: without clusters that were left out or dropped, without ports
// that lost a conflict, without addresses nobody may point us to.
func importSlices(
	in Input, merged merge.Result, sources []*discoveryv1.EndpointSlice, families []corev1.IPFamily, dropped map[string]bool,
) ([]*discoveryv1.EndpointSlice, []string) {
	var out []*discoveryv1.EndpointSlice
	var refused []string
	for _, s := range sources {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		if dropped[source] || !slices.Contains(merged.Clusters, source) || !slices.Contains(families, corev1.IPFamily(s.AddressType)) {
			continue
		}
		slice := importedSlice(in, s, source)
		for i := range s.Ports {
			p := &s.Ports[i]
			if merged.CarriesPort(source, ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP)) {
				slice.Ports = append(slice.Ports, *p)
			}
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			// A cluster may well point at its own nodes: that is what its host-network pods are.
			if why := refuse(e, s.AddressType, in, source != in.ClusterID); why != "" {
				refused = append(refused, fmt.Sprintf("%s from cluster %s", why, source))
				continue
			}
			slice.Endpoints = append(slice.Endpoints, *e)
			if source != in.ClusterID && e.NodeName != nil && in.IsNode(*e.NodeName) {
				// A node of ours only has the same name: whoever asks for endpoints of that node must not get these.
				slice.Endpoints[len(slice.Endpoints)-1].NodeName = nil
			}
		}
		out = append(out, slice)
	}
	slices.Sort(refused)
	return out, slices.Compact(refused)
}

func importedSlice(in Input, s *discoveryv1.EndpointSlice, source string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Service.Namespace,
			Name:      objects.ImportedSliceName(in.Service.Name, source, s.Name),
			Labels: map[string]string{
				mcsv1beta1.LabelServiceName:   in.Service.Name,
				mcsv1beta1.LabelSourceCluster: source,
				discoveryv1.LabelManagedBy:    objects.ManagedBy,
			},
			Annotations: maps.Clone(s.Annotations),
		},
		AddressType: s.AddressType,
		Endpoints:   make([]discoveryv1.Endpoint, 0, len(s.Endpoints)),
		Ports:       make([]discoveryv1.EndpointPort, 0, len(s.Ports)),
	}
}

func hasReady(s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
}

// refuse says why an endpoint must not be imported, or nothing when it may. A member that is taken over could otherwise
// send other clusters' clients to their own node, to the cloud's metadata service, or to themselves.
func refuse(e *discoveryv1.Endpoint, family discoveryv1.AddressType, in Input, foreign bool) string {
	if len(e.Addresses) == 0 {
		return "an endpoint without an address"
	}
	for _, text := range e.Addresses {
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			return fmt.Sprintf("%.64q, which is no address,", text)
		case string(FamilyOf(addr)) != string(family):
			return fmt.Sprintf("%s, which is not %s,", addr, family)
		case addr.Is4In6() || addr.Zone() != "":
			return fmt.Sprintf("%s, which is not in plain form,", addr)
		case addr.IsLoopback():
			return fmt.Sprintf("loopback address %s", addr)
		case addr.IsLinkLocalUnicast():
			return fmt.Sprintf("link-local address %s", addr)
		case addr.IsMulticast():
			return fmt.Sprintf("multicast address %s", addr)
		case addr.IsUnspecified() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return fmt.Sprintf("unusable address %s", addr)
		case foreign && in.IsNodeAddress(addr):
			return fmt.Sprintf("address %s of one of this cluster's own nodes", addr)
		}
	}
	return ""
}

// FamilyOf is the family of an address.
func FamilyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
