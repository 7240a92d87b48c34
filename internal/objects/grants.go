package objects

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// ClusterOf returns the Cluster object of a member, or nil if the broker's admin has none of that
// id.
type ClusterOf func(id string) *v1alpha1.Cluster

// MayExport reports whether the admin of the broker allows a member to export from a namespace.
func MayExport(cluster *v1alpha1.Cluster, namespace string) bool {
	return cluster != nil && NamespaceAllowed(cluster.Spec.AllowedNamespaces, namespace)
}

// AdmittedRecords returns the records that their exporters' Cluster objects allow now, with the
// ages that they can have. The broker checks a record only when it is written; what the admin
// narrows or revokes later must not go on.
func AdmittedRecords(records []*v1alpha1.ExportRecord, clusterOf ClusterOf) []*v1alpha1.ExportRecord {
	out := make([]*v1alpha1.ExportRecord, 0, len(records))
	for _, r := range records {
		if cluster := clusterOf(string(r.Spec.ClusterID)); MayExport(cluster, r.Spec.ServiceNamespace) {
			out = append(out, withPossibleAge(r, cluster))
		}
	}
	return out
}

// AdmittedSlices returns the slices that their exporters' Cluster objects allow now.
func AdmittedSlices(slices []*discoveryv1.EndpointSlice, clusterOf ClusterOf) []*discoveryv1.EndpointSlice {
	out := make([]*discoveryv1.EndpointSlice, 0, len(slices))
	for _, s := range slices {
		if MayExport(clusterOf(s.Labels[mcsv1beta1.LabelSourceCluster]), s.Labels[v1alpha1.LabelServiceNamespace]) {
			out = append(out, s)
		}
	}
	return out
}

// withPossibleAge returns a record whose export is not older than the admission of its cluster: the
// oldest export wins conflicts, so a member could otherwise take over any service by claiming an
// early date. Nothing else bounds the age. A member whose records the broker has lost publishes
// them again with their true ages, so the creation of the record itself is no bound.
func withPossibleAge(r *v1alpha1.ExportRecord, cluster *v1alpha1.Cluster) *v1alpha1.ExportRecord {
	if !r.Spec.ExportedAt.Before(&cluster.CreationTimestamp) {
		return r
	}
	admitted := *r // the cache shares r
	admitted.Spec.ExportedAt = cluster.CreationTimestamp
	return &admitted
}
