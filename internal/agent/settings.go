package agent

import (
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/objects"
)

// exportSettings returns the settings of this member's exports. ok is false until the broker has
// been reached; the settings then hold only what the membership says.
func (a *agent) exportSettings() (settings exports.Settings, ok bool) {
	settings = exports.Settings{ClusterID: a.membership.ClusterID, BrokerNamespace: a.membership.Namespace}
	if !a.connected() {
		return settings, false
	}
	settings.AdmittedAt = a.state.Cluster().CreationTimestamp
	settings.AllowedNamespaces = a.state.Cluster().Spec.AllowedNamespaces
	settings.UseClusterSetIP = ptr.Deref(a.state.ClusterSet().Spec.ClusterSetIP.EnabledByDefault, true)
	_, settings.NamedSlices = a.state.ClusterSet().Annotations[v1alpha1.AnnotationNamedSlices]
	if a.membership.UseClusterSetIP != nil {
		settings.UseClusterSetIP = *a.membership.UseClusterSetIP
	}
	return settings, true
}

// importSettings returns the settings of this member's imports. ok is false until the broker has
// been reached; the settings then hold only what is known in this cluster.
func (a *agent) importSettings() (settings imports.Settings, ok bool) {
	settings = imports.Settings{
		ClusterID: a.membership.ClusterID, Families: a.state.Families, OldDistribution: a.state.OldDistribution,
		DataPlane: objects.DataPlaneOf(a.membership.DataPlane), ServiceRanges: *a.serviceRanges.Load(),
		Migration: a.migration.current(),
	}
	if !a.connected() {
		return settings, false
	}
	set := a.state.ClusterSet()
	settings.AllowedNamespaces = a.state.Cluster().Spec.AllowedNamespaces
	settings.StaleEndpoints = set.Spec.StaleEndpoints
	return settings, true
}
