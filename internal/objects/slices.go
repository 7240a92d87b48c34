package objects

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// SourceService is the Service whose endpoints a slice of this cluster holds; ok is false for any other slice.
func SourceService(s *discoveryv1.EndpointSlice) (types.NamespacedName, bool) {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" || s.Labels[discoveryv1.LabelManagedBy] == ManagedBy {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, true
}

// ImportedService is the service that a slice of ours was imported for; ok is false for any other slice, a broker's own
// among them: a broker may live on the same API server.
func ImportedService(s *discoveryv1.EndpointSlice) (types.NamespacedName, bool) {
	name := s.Labels[mcsv1beta1.LabelServiceName]
	_, onBroker := s.Labels[v1alpha1.LabelServiceNamespace]
	if name == "" || onBroker || s.Labels[discoveryv1.LabelManagedBy] != ManagedBy {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, true
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
