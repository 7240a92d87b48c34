// Package v1 holds ClusterClaim (multicluster.k8s.io), the kind that KEP-2149 first defined for
// properties of a cluster. ClusterProperty of about.k8s.io replaced it. Seamark writes both with
// the same values, for tools that read either.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.k8s.io
package v1
