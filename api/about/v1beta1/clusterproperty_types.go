package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Well-known names of properties.
const (
	// PropertyClusterID is the id of this cluster: unique in its clusterset, immutable while the
	// cluster is a member.
	PropertyClusterID = "cluster.clusterset.k8s.io"
	// PropertyClusterIDOld is the first name of the same id in KEP-2149. It always has the same value.
	PropertyClusterIDOld = "id.k8s.io"
	// PropertyClusterSet is the clusterset this cluster belongs to. It exists exactly while the
	// cluster is a member.
	PropertyClusterSet = "clusterset.k8s.io"
)

// MaxValueBytes is the longest value a property may have.
const MaxValueBytes = 128000

// ClusterProperty is one fact about this cluster, under a well-known name or one of your own.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,path=clusterproperties,categories=multicluster
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/2149-clusterid"
// +kubebuilder:metadata:labels="seamark.dev/schema-revision=1"
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterProperty struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterPropertySpec `json:"spec"`
	// +optional
	Status ClusterPropertyStatus `json:"status,omitempty"`
}

// ClusterPropertySpec holds the value of a property.
type ClusterPropertySpec struct {
	// Value is a string of 1 to 128,000 bytes. Its meaning depends on the name of the property.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128000
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 128000",message="must be at most 128000 bytes long in UTF-8"
	Value string `json:"value"`
}

// ClusterPropertyStatus is empty. SIG Multicluster reserved it, and clients would fail if the CRD
// of one tool had a status subresource and the CRD of another did not.
type ClusterPropertyStatus struct{}

// ClusterPropertyList is a list of ClusterProperties.
//
// +kubebuilder:object:root=true
type ClusterPropertyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterProperty `json:"items"`
}
