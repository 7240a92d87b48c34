package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Well-known names of claims.
const (
	// ClaimClusterID is the id of this cluster: unique in its clusterset, immutable while the cluster
	// is a member.
	ClaimClusterID = "id.k8s.io"
	// ClaimClusterSet is the clusterset this cluster belongs to. It exists exactly while the cluster
	// is a member.
	ClaimClusterSet = "clusterset.k8s.io"
)

// MaxValueBytes is the longest value a claim may have: the 128 KB of KEP-2149, in bytes as for
// ClusterProperty.
const MaxValueBytes = 128000

// ClusterClaim is one fact about this cluster, under a well-known name or one of your own.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=clusterclaims,categories=multicluster
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved: the provisional kind of https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/2149-clusterid"
// +kubebuilder:metadata:labels="seamark.dev/schema-revision=1"
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterClaimSpec `json:"spec"`
}

// ClusterClaimSpec holds the value of a claim.
type ClusterClaimSpec struct {
	// Value is a string of at most 128,000 bytes. Its meaning depends on the name of the claim.
	//
	// +kubebuilder:validation:MaxLength=128000
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 128000",message="must be at most 128000 bytes long in UTF-8"
	Value string `json:"value"`
}

// ClusterClaimList is a list of ClusterClaims.
//
// +kubebuilder:object:root=true
type ClusterClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterClaim `json:"items"`
}
