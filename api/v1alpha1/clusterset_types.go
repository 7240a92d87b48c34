package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterSet holds the settings that all members of a clusterset share. Each broker namespace has
// one. The admin of the broker writes it when the broker is deployed. Members only read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=cset,categories=multicluster
// +kubebuilder:metadata:labels="seamark.dev/schema-revision=3"
// +kubebuilder:printcolumn:name="Clusterset IP",type=boolean,JSONPath=`.spec.clusterSetIP.enabledByDefault`,description="Whether an export gets a clusterset IP by default"
// +kubebuilder:printcolumn:name="Ranges",type=string,JSONPath=`.spec.clusterSetIP.ranges`,description="Address ranges of clusterset IPs"
// +kubebuilder:printcolumn:name="Stale Endpoints",type=string,JSONPath=`.spec.staleEndpoints`,description="What happens to endpoints of a stale member"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63",message="the name of a clusterset must be an RFC-1123 label of at most 63 characters: every member stores it"
type ClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterSetSpec `json:"spec"`
}

// ClusterSetSpec holds the admin's settings for the whole clusterset.
type ClusterSetSpec struct {
	// ClusterSetIP defines whether services get a clusterset IP, and from which ranges.
	ClusterSetIP ClusterSetIPSettings `json:"clusterSetIP"`

	// StaleEndpoints defines what importers do with the endpoints of a stale member: one whose lease
	// has expired.
	//
	// +kubebuilder:default=Failover
	// +optional
	StaleEndpoints StaleEndpointsPolicy `json:"staleEndpoints,omitempty"`
}

// ClusterSetIPSettings are the clusterset-wide settings of clusterset IPs.
//
// +kubebuilder:validation:XValidation:rule="self.ranges.all(r, !isCIDR(r) || (cidr(r).ip().family() == 4 ? self.blockPrefixLengths.ipv4 > cidr(r).prefixLength() : self.blockPrefixLengths.ipv6 > cidr(r).prefixLength()))",message="a block must be smaller than the range it is cut from: raise blockPrefixLengths or widen ranges"
type ClusterSetIPSettings struct {
	// EnabledByDefault applies to exports for which neither their annotation nor their cluster's flag
	// decides: they get a clusterset IP (true) or classic mode (false).
	//
	// +kubebuilder:default=true
	// +optional
	EnabledByDefault *bool `json:"enabledByDefault,omitempty"`

	// Ranges are the address ranges from which every member gets a block of each family. A range can
	// be added later, but not changed or removed: its clusterset IPs are in use.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(r, !isCIDR(r) || self.filter(o, isCIDR(o) && (cidr(o).containsCIDR(r) || cidr(r).containsCIDR(o))).size() == 1)",message="ranges must not overlap"
	// +kubebuilder:validation:XValidation:rule="self.all(r, !isCIDR(r) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '::/127', 'fe80::/10', 'ff00::/8'].exists(b, cidr(b).containsCIDR(r) || cidr(r).containsCIDR(b)))",message="must not overlap loopback, link-local, multicast or unspecified addresses: importers refuse those"
	// +kubebuilder:validation:XValidation:rule="oldSelf.all(r, r in self)",message="a range cannot be removed or changed while the clusterset exists: its clusterset IPs are in use; deploy a new broker instead"
	Ranges []CIDR `json:"ranges"`

	// BlockPrefixLengths are the default sizes of members' blocks. The default range for IPv4, a /8,
	// has 1,024 blocks of 16,382 addresses.
	//
	// +kubebuilder:default={ipv4: 18, ipv6: 112}
	// +optional
	BlockPrefixLengths BlockPrefixLengths `json:"blockPrefixLengths,omitempty"`
}

// BlockPrefixLengths are the prefix lengths of a member's blocks, by address family.
type BlockPrefixLengths struct {
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=30
	// +kubebuilder:default=18
	// +optional
	IPv4 int32 `json:"ipv4,omitempty"`
	// +kubebuilder:validation:Minimum=32
	// +kubebuilder:validation:Maximum=126
	// +kubebuilder:default=112
	// +optional
	IPv6 int32 `json:"ipv6,omitempty"`
}

// StaleEndpointsPolicy defines what happens to the endpoints of a member whose lease has expired.
//
// +kubebuilder:validation:Enum=Failover;Remove
type StaleEndpointsPolicy string

const (
	// StaleEndpointsFailover drops them where another live cluster serves the same port and keeps
	// them where none does.
	StaleEndpointsFailover StaleEndpointsPolicy = "Failover"
	// StaleEndpointsRemove always drops them.
	StaleEndpointsRemove StaleEndpointsPolicy = "Remove"
)

// ClusterSetList is a list of ClusterSets.
//
// +kubebuilder:object:root=true
type ClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSet `json:"items"`
}
