package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is a member of the clusterset. Its name is the cluster id. The admin of the broker
// creates it with the invitation and owns its spec. The member's agent writes only its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=mcl,categories=multicluster
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="seamark.dev/schema-revision=7"
// +kubebuilder:printcolumn:name="Blocks",type=string,JSONPath=`.spec.clusterSetIPBlocks`,description="Blocks from which this cluster allocates clusterset IPs"
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.spec.allowedNamespaces`,description="Namespaces this cluster may export from; empty means all but system namespaces"
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.agentVersion`
// +kubebuilder:printcolumn:name="Data Plane",type=string,JSONPath=`.status.dataPlane`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="the name is the cluster id: one RFC-1123 label (lower-case letters, digits and '-'), or two joined by a dot"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name is the cluster id: at most 63 characters, because it is also a label value"
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is what the admin of the broker grants a member.
type ClusterSpec struct {
	// ClusterSetIPBlocks are the address blocks from which this cluster allocates clusterset IPs,
	// disjoint from every other member's. A block can be added when the others are used up; agents
	// of earlier versions use the first one of each family only.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(r, !isCIDR(r) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '::/127', 'fe80::/10', 'ff00::/8'].exists(b, cidr(b).containsCIDR(r) || cidr(r).containsCIDR(b)))",message="must not overlap loopback, link-local, multicast or unspecified addresses: importers refuse those"
	// +listType=atomic
	// +optional
	ClusterSetIPBlocks []CIDR `json:"clusterSetIPBlocks,omitempty"`

	// AllowedNamespaces are the namespaces this cluster may export services from. Empty means all but
	// kube-* and seamark-*. Those are allowed only if they are named here.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +listType=set
	// +optional
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`

	// EndpointRanges are the ranges in which this cluster's endpoints may lie. Importers refuse
	// those outside, and refuse endpoints inside from members whose own EndpointRanges do not
	// contain them. Empty means that importers decide by the ranges that the members publish; see
	// docs/decisions/0011-addresses-of-members.md.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	EndpointRanges []CIDR `json:"endpointRanges,omitempty"`

	// Limits bound what this cluster may publish.
	//
	// +optional
	Limits ClusterLimits `json:"limits,omitempty"`
}

// ClusterLimits bound what one member may publish, so that it cannot fill the memory or the Service
// ranges of the others. Of what exceeds a limit, the oldest records stay.
//
// +kubebuilder:object:generate=false
type ClusterLimits struct {
	// Services is how many services the cluster may export; 5000 when absent.
	//
	// +kubebuilder:validation:Minimum=1
	// +optional
	Services int32 `json:"services,omitempty"`

	// Endpoints is how many endpoints all its services may have together; 100000 when absent.
	//
	// +kubebuilder:validation:Minimum=1
	// +optional
	Endpoints int32 `json:"endpoints,omitempty"`

	// Bytes is how large the exported labels, annotations and ports of all its services may be;
	// 32 MiB when absent.
	//
	// +kubebuilder:validation:Minimum=1
	// +optional
	Bytes int32 `json:"bytes,omitempty"`
}

// ClusterStatus is what a member reports about itself. It informs people and tools. Importers also
// refuse endpoints of one member that lie in the ranges of another.
type ClusterStatus struct {
	// AgentVersion is the version of the agent that last wrote this status.
	//
	// +kubebuilder:validation:MaxLength=128
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`

	// DataPlane is how this cluster reaches imported services.
	//
	// +optional
	DataPlane DataPlane `json:"dataPlane,omitempty"`

	// PodCIDRs are the ranges of this cluster's pods, as far as its nodes publish them. Members whose
	// ranges overlap cannot reach each other's pods.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	PodCIDRs []CIDR `json:"podCIDRs,omitempty"`

	// ServiceCIDRs are the ranges of this cluster's own ClusterIPs.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ServiceCIDRs []CIDR `json:"serviceCIDRs,omitempty"`

	// NodeCIDRs are the addresses of this cluster's nodes, joined into ranges that contain no
	// others.
	//
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	NodeCIDRs []CIDR `json:"nodeCIDRs,omitempty"`

	// Beacons are where this cluster answers probes. Members that import from it find out with them
	// whether they reach it. Absent for a cluster without beacons.
	//
	// +optional
	Beacons *Beacons `json:"beacons,omitempty"`

	// Demoted are clusters that have been silent for so long that, for this member, they no longer
	// decide conflicts.
	//
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	Demoted []string `json:"demoted,omitempty"`
}

// Beacons are where a cluster answers probes, and what a probe must carry.
type Beacons struct {
	// Port is the UDP port of all beacons.
	//
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Key is what probes and answers are authenticated with, 32 bytes. Every member may read it: it
	// keeps strangers from getting answers, and from giving them.
	//
	// +kubebuilder:validation:MinLength=44
	// +kubebuilder:validation:MaxLength=44
	Key []byte `json:"key"`

	// Addresses are those of the beacons that are ready, at most eight of each family, sorted.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Addresses []BeaconAddress `json:"addresses,omitempty"`
}

// BeaconAddress is one address of a beacon.
type BeaconAddress struct {
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	IP string `json:"ip"`

	// Node is a hash of the name of the node that the beacon runs on: beacons with the same value
	// fail together. Absent when the node is not known.
	//
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Node string `json:"node,omitempty"`
}

// DataPlane is how a cluster makes imported services reachable.
//
// +kubebuilder:validation:Enum=service;nftables;none
type DataPlane string

const (
	// DataPlaneService creates a selectorless Service for each import. The cluster's own Service
	// implementation balances it.
	DataPlaneService DataPlane = "service"
	// DataPlaneNFTables runs seamark-proxy, which balances clusterset IPs on each node.
	DataPlaneNFTables DataPlane = "nftables"
	// DataPlaneNone publishes clusterset IPs; another component routes them.
	DataPlaneNone DataPlane = "none"
)

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}
