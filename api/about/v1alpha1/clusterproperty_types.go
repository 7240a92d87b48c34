package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterProperty is one fact about this cluster, under a well-known name or one of your own.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=clusterproperties,categories=multicluster
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterProperty struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterPropertySpec `json:"spec"`
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

// ClusterPropertyList is a list of ClusterProperties.
//
// +kubebuilder:object:root=true
type ClusterPropertyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterProperty `json:"items"`
}
