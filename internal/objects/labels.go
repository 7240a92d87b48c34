package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

const (
	// ManagedBy is the value of endpointslice.kubernetes.io/managed-by on every EndpointSlice that
	// Seamark writes. It keeps other controllers from changing the slice.
	ManagedBy = "agent.seamark.dev"
	// LabelManagedBy marks other objects that Seamark created.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBySeamark is the value of LabelManagedBy.
	ManagedBySeamark = "seamark"
)

// Labels returns the labels of a broker object that belongs to a service. clusterID is empty for
// the aggregate, which belongs to no single cluster.
func Labels(service types.NamespacedName, clusterID string) map[string]string {
	labels := map[string]string{
		mcsv1beta1.LabelServiceName:    service.Name,
		v1alpha1.LabelServiceNamespace: service.Namespace,
	}
	if clusterID != "" {
		labels[mcsv1beta1.LabelSourceCluster] = clusterID
	}
	return labels
}

// ServiceOf returns the service that a broker object belongs to by its labels. ok is false without
// such labels.
func ServiceOf(obj metav1.Object) (service types.NamespacedName, ok bool) {
	labels := obj.GetLabels()
	service = types.NamespacedName{Namespace: labels[v1alpha1.LabelServiceNamespace], Name: labels[mcsv1beta1.LabelServiceName]}
	return service, service.Name != "" && service.Namespace != ""
}
