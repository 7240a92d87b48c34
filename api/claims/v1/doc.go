// Package v1 holds ClusterClaim (multicluster.k8s.io), the kind that the first text of KEP-2149 gave the facts a cluster
// knows about itself. ClusterProperty of about.k8s.io took its place; Seamark keeps both equal for tools that read either.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.k8s.io
package v1
