package objects

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// IsManagedImport reports whether a member's agent created the ServiceImport. Those of other
// controllers and the broker's aggregates are not managed.
func IsManagedImport(si *mcsv1beta1.ServiceImport) bool {
	_, onBroker := si.Labels[v1alpha1.LabelServiceNamespace]
	return si.Labels[LabelManagedBy] == ManagedBySeamark && !onBroker
}

// DerivedFrom returns the imported service that a Service was derived from. ok is false for any
// other Service.
func DerivedFrom(svc *corev1.Service) (service types.NamespacedName, ok bool) {
	name := svc.Labels[mcsv1beta1.LabelServiceName]
	if name == "" || svc.Labels[LabelManagedBy] != ManagedBySeamark || svc.Name != DerivedServiceName(name) {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: svc.Namespace, Name: name}, true
}

// SourceService returns the Service of this cluster whose endpoints a slice holds. ok is false for
// slices that Seamark wrote and for slices of no Service.
func SourceService(s *discoveryv1.EndpointSlice) (service types.NamespacedName, ok bool) {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" || s.Labels[discoveryv1.LabelManagedBy] == ManagedBy {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, true
}

// ImportedService returns the service that an agent imported a slice for. ok is false for any other
// slice, also for those of a broker on the same API server.
func ImportedService(s *discoveryv1.EndpointSlice) (service types.NamespacedName, ok bool) {
	name := s.Labels[mcsv1beta1.LabelServiceName]
	_, onBroker := s.Labels[v1alpha1.LabelServiceNamespace]
	if name == "" || onBroker || s.Labels[discoveryv1.LabelManagedBy] != ManagedBy {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, true
}

// ListsCluster reports whether a ServiceImport lists a cluster among its exporters.
func ListsCluster(si *mcsv1beta1.ServiceImport, id string) bool {
	return slices.ContainsFunc(si.Status.Clusters, func(s mcsv1beta1.ClusterStatus) bool { return s.Cluster == id })
}
