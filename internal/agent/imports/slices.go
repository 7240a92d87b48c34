package imports

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// importSlices turns the broker's slices into this cluster's: without clusters that were left out,
// without ports that lost a conflict, and without addresses that other clusters must
// not publish. It returns those addresses too, each with the reason.
func importSlices(
	in Input, merged merge.Result, sources []*discoveryv1.EndpointSlice, families []corev1.IPFamily,
) (out []*discoveryv1.EndpointSlice, refused []string) {
	for _, s := range sources {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		if !slices.Contains(merged.Clusters, source) || !slices.Contains(families, corev1.IPFamily(s.AddressType)) {
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
			if why := whyRefused(e, s.AddressType, source, in); why != "" {
				refused = append(refused, why)
				continue
			}
			slice.Endpoints = append(slice.Endpoints, *e)
			if source != in.ClusterID && e.NodeName != nil && in.IsNode(*e.NodeName) {
				// A node of this cluster has the same name. Traffic that is to stay on that node must not
				// reach an endpoint of another cluster.
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
