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
	// LabelPartOf is on objects of Seamark that users and their tools may write too.
	LabelPartOf = "app.kubernetes.io/part-of"
	// PartOfSeamark is the value of LabelPartOf.
	PartOfSeamark = "seamark"
	// ReleaseName is the name of the Helm release in each member. A cluster has one release.
	ReleaseName = "seamark"
)

// AllowHelm marks an object so that helm takes it into the release of Seamark without a flag. It
// reports whether the object changed.
func AllowHelm(obj metav1.Object) bool {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	const name, namespace = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
	changed := labels[LabelManagedBy] != "Helm" || annotations[name] != ReleaseName || annotations[namespace] != AgentNamespace
	labels[LabelManagedBy], annotations[name], annotations[namespace] = "Helm", ReleaseName, AgentNamespace
	obj.SetLabels(labels)
	obj.SetAnnotations(annotations)
	return changed
}

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
