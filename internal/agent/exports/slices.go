package exports

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// Slices returns the slices of the service on the broker: one per source slice, so that a pod
// change rewrites one slice. In classic mode it is one per family with the Service's ClusterIP,
// because that is what clients connect to. The importer uses it too: a cluster's own endpoints
// reach its own imports without the broker.
func Slices(in Input, mode merge.Mode) []*discoveryv1.EndpointSlice {
	if in.Service == nil {
		return nil
	}
	if mode == merge.ModeClassic {
		return classicSlices(in)
	}
	service := client.ObjectKeyFromObject(in.Service)
	out := make([]*discoveryv1.EndpointSlice, 0, len(in.Slices))
	for _, source := range in.Slices {
		if source.AddressType == discoveryv1.AddressTypeFQDN || source.DeletionTimestamp != nil {
			continue // other clusters cannot resolve names of this cluster's DNS
		}
		slice := newSlice(in, service, source.Name, source.AddressType)
		slice.Ports = source.Ports
		slice.Endpoints = make([]discoveryv1.Endpoint, len(source.Endpoints))
		for i := range source.Endpoints {
			slice.Endpoints[i] = ForeignEndpoint(&source.Endpoints[i])
		}
		slice.Annotations = RegionAnnotations(slice.Endpoints, in.RegionOf)
		out = append(out, slice)
	}
	return out
}

// ForeignEndpoint returns an endpoint as other clusters see it. Hints and the reference to the pod
// are valid only in the cluster itself.
func ForeignEndpoint(e *discoveryv1.Endpoint) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  e.Addresses,
		Conditions: e.Conditions,
		Hostname:   e.Hostname,
		NodeName:   e.NodeName,
		Zone:       e.Zone,
	}
}

// classicSlices returns slices with the Service's ClusterIPs, which are ready while any endpoint
// is.
func classicSlices(in Input) []*discoveryv1.EndpointSlice {
	service := client.ObjectKeyFromObject(in.Service)
	ready := reachable.HasReadyEndpoint(in.Slices...)
	var out []*discoveryv1.EndpointSlice
	for i, ip := range in.Service.Spec.ClusterIPs {
		if i >= len(in.Service.Spec.IPFamilies) || ip == corev1.ClusterIPNone {
			break
		}
		family := in.Service.Spec.IPFamilies[i]
		slice := newSlice(in, service, "clusterip/"+string(family), discoveryv1.AddressType(family))
		slice.Endpoints = []discoveryv1.Endpoint{{
			Addresses:  []string{ip},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready), Serving: ptr.To(ready), Terminating: ptr.To(false)},
		}}
		for _, p := range in.Service.Spec.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(p.Port), AppProtocol: p.AppProtocol,
			})
		}
		slice.Annotations = weightAnnotation(in.Export)
		out = append(out, slice)
	}
	return out
}

// weightAnnotation returns the weight of this cluster in DNS answers, if the export has a valid
// one.
func weightAnnotation(export *mcsv1beta1.ServiceExport) map[string]string {
	if export == nil {
		return nil
	}
	if _, err := strconv.ParseUint(export.Annotations[v1alpha1.AnnotationWeight], 10, 8); err != nil {
		return nil
	}
	return map[string]string{v1alpha1.AnnotationWeight: export.Annotations[v1alpha1.AnnotationWeight]}
}

func newSlice(in Input, service types.NamespacedName, source string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	labels := objects.Labels(service, in.ClusterID)
	labels[discoveryv1.LabelManagedBy] = objects.ManagedBy
	if in.NamedSlices {
		labels[discoveryv1.LabelServiceName] = objects.UnusedServiceName(service.Name, in.ClusterID, "")
		labels[corev1.IsHeadlessService] = "" // the broker's cluster may have a kube-proxy
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.BrokerNamespace,
			Name:      objects.SliceName(service, in.ClusterID, source),
			Labels:    labels,
		},
		AddressType: family,
	}
}

// RegionAnnotations returns the regions of the nodes of these endpoints: the most frequent region,
// and the nodes that are in another one. Clusters that span regions are rare, so this is short.
func RegionAnnotations(endpoints []discoveryv1.Endpoint, regionOf func(string) string) map[string]string {
	byNode := map[string]string{}
	count := map[string]int{}
	for i := range endpoints {
		node := ptr.Deref(endpoints[i].NodeName, "")
		if node == "" {
			continue
		}
		region := regionOf(node)
		if _, seen := byNode[node]; seen || region == "" {
			continue
		}
		byNode[node] = region
		count[region]++
	}
	if len(byNode) == 0 {
		return nil
	}
	main := ""
	for _, region := range slices.Sorted(maps.Keys(count)) {
		if main == "" || count[region] > count[main] {
			main = region
		}
	}
	maps.DeleteFunc(byNode, func(_, region string) bool { return region == main })
	annotations := map[string]string{v1alpha1.AnnotationRegion: main}
	if len(byNode) > 0 {
		encoded, err := json.Marshal(byNode) // keys are sorted; a map of strings always encodes
		if err == nil {
			annotations[v1alpha1.AnnotationNodeRegions] = string(encoded)
		}
	}
	return annotations
}
