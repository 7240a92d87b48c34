// Package v1alpha1 holds the objects Seamark keeps on the broker: the ClusterSet with its settings, one Cluster per member
// and one ExportRecord per service and exporting cluster. One broker namespace is one clusterset.
//
// The doc comments of the types are their specification, the validation markers below them make it binding: a broker's API
// server refuses what they rule out, whoever writes it.
//
// +kubebuilder:object:generate=true
// +groupName=seamark.dev
package v1alpha1
