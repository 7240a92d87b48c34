package objects

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Ours tells a ServiceImport this agent made from somebody else's and from the broker's aggregates.
func IsManagedImport(si *mcsv1beta1.ServiceImport) bool {
	_, onBroker := si.Labels[v1alpha1.LabelServiceNamespace]
	return si.Labels[LabelManagedBy] == ManagedBySeamark && !onBroker
}

// DerivedFrom is the imported service a Service was derived from; ok is false for any other Service.
func DerivedFrom(svc *corev1.Service) (types.NamespacedName, bool) {
	name := svc.Labels[mcsv1beta1.LabelServiceName]
	if name == "" || svc.Labels[LabelManagedBy] != ManagedBySeamark || svc.Name != DerivedServiceName(name) {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: svc.Namespace, Name: name}, true
}
