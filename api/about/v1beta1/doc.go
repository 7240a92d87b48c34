// Package v1beta1 holds ClusterProperty of the about.k8s.io API group: facts a cluster knows about itself, its id in the
// clusterset above all. The group belongs to SIG Multicluster; this package serves the same kind with the same fields, so
// that a ClusterProperty written by any tool is read by all.
//
// +kubebuilder:object:generate=true
// +groupName=about.k8s.io
package v1beta1
