package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// ExportRecord is what one cluster contributes to one service. Its name is
// <service>.<namespace>.<cluster>. Dots separate the parts because neither a service nor a
// namespace may contain one. Only the member it names writes it. Every member merges all records of
// a service for itself and computes the same result.
//
// A record copies fields of a Service unchanged. Values that this version does not know, for
// example of a newer trafficDistribution, pass through: they must never drop an export.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=xrec,categories=multicluster
// +kubebuilder:metadata:labels="seamark.dev/schema-revision=4"
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.serviceName`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.serviceNamespace`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Ports",type=string,JSONPath=`.spec.ports[*].port`,priority=1
// +kubebuilder:printcolumn:name="Exported",type=date,JSONPath=`.spec.exportedAt`,description="When the ServiceExport was created; the oldest wins conflicts"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.serviceName + '.' + self.spec.serviceNamespace + '.' + self.spec.clusterID",messageExpression="'the name must be <serviceName>.<serviceNamespace>.<clusterID> of its spec: ' + self.spec.serviceName + '.' + self.spec.serviceNamespace + '.' + self.spec.clusterID"
type ExportRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExportRecordSpec `json:"spec"`
}

// ExportRecordSpec describes an exported service as its cluster has it.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Headless' || (has(self.ports) && self.ports.size() > 0)",message="a service that is not headless has at least one port"
type ExportRecordSpec struct {
	// ServiceName is the name of the Service and of its ServiceExport.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: every service and cluster has a record of its own"
	ServiceName string `json:"serviceName"`

	// ServiceNamespace is their namespace.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: every service and cluster has a record of its own"
	ServiceNamespace string `json:"serviceNamespace"`

	// ClusterID is the exporting cluster.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: every service and cluster has a record of its own"
	ClusterID ClusterID `json:"clusterID"`

	// ExportedAt is the creation time of the ServiceExport, but not earlier than the creation of
	// the exporter's Cluster. The oldest export wins conflicts; ties go to the smaller cluster id.
	// A record may become younger, never older.
	//
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="it cannot become older"
	ExportedAt metav1.Time `json:"exportedAt"`

	// Type is ClusterSetIP for every Service with a ClusterIP, Headless for one without.
	//
	// +kubebuilder:validation:Enum=ClusterSetIP;Headless
	Type mcsv1beta1.ServiceImportType `json:"type"`

	// Ports are the ports of the Service, in its order. Each pair of protocol and number is unique.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || self.all(p, has(p.name) && p.name != '')",message="every port needs a name when there is more than one"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(p.name) || self.exists_one(q, has(q.name) && q.name == p.name))",message="port names must be unique"
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +optional
	Ports []ServicePort `json:"ports,omitempty"`

	// IPFamilies are the address families of the Service, its primary one first.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +listType=set
	IPFamilies []corev1.IPFamily `json:"ipFamilies"`

	// SessionAffinity of the Service. Empty means None.
	//
	// +optional
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// SessionAffinityConfig of the Service.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.clientIP) || !has(self.clientIP.timeoutSeconds) || (self.clientIP.timeoutSeconds > 0 && self.clientIP.timeoutSeconds <= 86400)",message="clientIP.timeoutSeconds must be between 1 and 86400"
	// +optional
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`

	// InternalTrafficPolicy of the Service. Empty means Cluster.
	//
	// +optional
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`

	// TrafficDistribution of the Service; any string passes through.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`

	// ExportedLabels and ExportedAnnotations are from the spec of the ServiceExport, never from the
	// metadata of an object.
	//
	// +optional
	ExportedLabels map[string]string `json:"exportedLabels,omitempty"`
	// +optional
	ExportedAnnotations map[string]string `json:"exportedAnnotations,omitempty"`

	// UseClusterSetIP is how the service runs: with a clusterset IP, or in classic mode. The first
	// exporter sets it to its request, and later exporters to what runs, so that the mode stays when
	// the oldest exporter leaves. A later change of the annotation does not change it.
	UseClusterSetIP bool `json:"useClusterSetIP"`

	// RequestedClusterSetIP is what its annotation and its cluster's flag request now. If it differs
	// from what the service has, a conflict is reported and nothing else changes.
	RequestedClusterSetIP bool `json:"requestedClusterSetIP"`

	// ClusterSetIPs are the clusterset IPs of the service that this record claims, at most one per
	// family. The first exporter allocates them from its block. Later exporters claim the same ones,
	// so that they stay when the first exporter leaves. See docs/decisions/0010-claims-in-records.md.
	//
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a) && ip.isCanonical(a))",message="must be IP addresses in canonical form"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !self.all(a, isIP(a)) || ip(self[0]).family() != ip(self[1]).family()",message="at most one clusterset IP per address family"
	// +listType=atomic
	// +optional
	ClusterSetIPs []string `json:"clusterSetIPs,omitempty"`

	// ClusterIPs is what agents before revision 2 of this schema write. No agent reads it. A broker
	// that drops it makes them write the record again and again, and never the status of the
	// ServiceExport.
	//
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +listType=atomic
	// +optional
	ClusterIPs []string `json:"clusterIPs,omitempty"`

	// MergeVersion is the version of the merge rules of the agent that wrote the record. It is 0 in
	// records of agents that did not claim clusterset IPs in records.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	MergeVersion int32 `json:"mergeVersion,omitempty"`

	// Prefer is the value of the annotation seamark.dev/prefer on the ServiceExport; any string passes
	// through.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Prefer string `json:"prefer,omitempty"`
}

// ServicePort is a port of a Service as clients see it.
type ServicePort struct {
	// Name of the port. It may be empty only if the service has one port.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +optional
	Name string `json:"name,omitempty"`

	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	// +kubebuilder:default=TCP
	Protocol corev1.Protocol `json:"protocol"`

	// AppProtocol passes through unchanged.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +optional
	AppProtocol *string `json:"appProtocol,omitempty"`

	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// ExportRecordList is a list of ExportRecords.
//
// +kubebuilder:object:root=true
type ExportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExportRecord `json:"items"`
}
