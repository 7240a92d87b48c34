// Package v1alpha1 holds the kinds that Seamark stores on the broker: the ClusterSet with its
// settings, one Cluster per member and one ExportRecord per service and exporting cluster. One
// broker namespace is one clusterset.
//
// The doc comments of the types are their specification. The validation markers enforce it: the API
// server of the broker rejects an object that violates them, from any writer.
//
// +kubebuilder:object:generate=true
// +groupName=seamark.dev
package v1alpha1
