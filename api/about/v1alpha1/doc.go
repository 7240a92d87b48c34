// Package v1alpha1 holds the first version of ClusterProperty of the about.k8s.io API group. It is
// served for tools that still read it and differs from v1beta1 only in having no status. New code
// uses v1beta1, and the names of the well-known properties are there.
//
// +kubebuilder:object:generate=true
// +groupName=about.k8s.io
package v1alpha1
