package apply

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// SameMetadata reports whether two objects have the same labels and annotations. Every reconcile
// compares them, so this does not use reflection.
func SameMetadata(a, b metav1.Object) bool {
	return maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations())
}

// SameOwners reports whether two lists of owners are the same.
func SameOwners(a, b []metav1.OwnerReference) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.OwnerReference) bool {
		return x.UID == y.UID && x.Name == y.Name && x.Kind == y.Kind && x.APIVersion == y.APIVersion &&
			ptr.Equal(x.Controller, y.Controller) && ptr.Equal(x.BlockOwnerDeletion, y.BlockOwnerDeletion)
	})
}

// SameImportSpec reports whether two ServiceImports have the same spec. A test fails when the API
// gains a field that is not compared.
func SameImportSpec(a, b *mcsv1beta1.ServiceImportSpec) bool {
	return a.Type == b.Type && slices.Equal(a.IPs, b.IPs) && slices.Equal(a.IPFamilies, b.IPFamilies) &&
		slices.EqualFunc(a.Ports, b.Ports, samePort) && a.SessionAffinity == b.SessionAffinity &&
		equality.Semantic.DeepEqual(a.SessionAffinityConfig, b.SessionAffinityConfig) &&
		ptr.Equal(a.InternalTrafficPolicy, b.InternalTrafficPolicy) && ptr.Equal(a.TrafficDistribution, b.TrafficDistribution)
}

func samePort(a, b mcsv1beta1.ServicePort) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port && ptr.Equal(a.AppProtocol, b.AppProtocol)
}
