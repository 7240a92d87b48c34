// Package v1beta1 holds ClusterProperty of the about.k8s.io API group: properties of a cluster,
// such as its id in the clusterset. The group belongs to SIG Multicluster. This package has the
// same kind with the same fields, so that every tool can read a ClusterProperty that another tool
// wrote.
//
// +kubebuilder:object:generate=true
// +groupName=about.k8s.io
package v1beta1
