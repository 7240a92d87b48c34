// Package imports creates the services of the clusterset in this cluster: the records and slices on
// the broker become a ServiceImport and EndpointSlices in the service's namespace.
//
// gather.go reads everything into Input, Decide turns that into a Plan without I/O, and
// reconciler.go writes the difference.
package imports

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Settings apply to all imports of this member.
type Settings struct {
	ClusterID         string
	AllowedNamespaces []string
	StaleEndpoints    v1alpha1.StaleEndpointsPolicy
	// ServiceRanges are those of this cluster's own ClusterIPs.
	ServiceRanges []netip.Prefix
	// Families are the IP families of this cluster.
	Families []corev1.IPFamily
	// DataPlane is how this cluster reaches imported services.
	DataPlane objects.DataPlane
	// Migration is how far this cluster has moved from Submariner Lighthouse, empty if it does not
	// move.
	Migration v1alpha1.MigrationPhase
	// OldDistribution reports whether the API server is older than 1.34: it then has neither hints
	// for nodes nor the newer traffic distributions.
	OldDistribution bool
}

// Input is all that was read to decide about one service.
type Input struct {
	Settings
	Service types.NamespacedName
	Records []*v1alpha1.ExportRecord
	// Slices are the broker's slices. Those of this cluster are not used: they may be behind its
	// own.
	Slices []*discoveryv1.EndpointSlice
	// Own is what this cluster itself has of the service, without a Service if it does not export
	// it: its endpoints reach its own imports without the broker.
	Own exports.Input
	// Existing is this cluster's ServiceImport as it is.
	Existing *mcsv1beta1.ServiceImport
	// Derived is the Service with the name of the derived Service. It may not be managed by
	// Seamark.
	Derived *corev1.Service
	// DerivedError is why the derived Service could not be written.
	DerivedError error
	// Accepts reports whether a clusterset IP may be used for this service: it lies in the
	// clusterset's ranges, and no other service has it.
	Accepts func(netip.Addr) bool
	// BlockOwner returns the member whose block contains a clusterset IP, "" if there is none.
	BlockOwner func(netip.Addr) string
	// Remembered are the clusterset IPs that this cluster last saw of the service.
	Remembered []netip.Addr
	// Stale are the clusters that have not been heard from.
	Stale map[string]bool
	// Demoted are the stale clusters that have lost their precedence.
	Demoted map[string]bool
	// Reached is which clusters are reached from this one.
	Reached objects.ReachStates
	// Held are clusters without a record whose endpoints stay. HeldSlices are theirs in this cluster,
	// which are left as they are.
	Held       HeldSources
	HeldSlices []*discoveryv1.EndpointSlice
	// IsNodeAddress reports whether a node of this cluster has an address. Endpoints of other clusters
	// must not.
	IsNodeAddress func(netip.Addr) bool
	// WhyNot returns why a member may not publish an address, or "" if it may.
	WhyNot func(cluster string, addr netip.Addr) string
	// IsNode reports whether a node of this cluster has a name.
	IsNode func(string) bool
}

// Plan is what this cluster should hold of a service.
type Plan struct {
	// Import is nil when the service is not imported. Its status is complete but for the times of
	// transitions.
	Import  *mcsv1beta1.ServiceImport
	Derived Derived
	// Slices have no owner: the garbage collector would delete them with a ServiceImport that a user
	// deletes, and clients would lose the service until they are written again.
	Slices []*discoveryv1.EndpointSlice
	// Refused says which addresses of which clusters were not imported and why, in a fixed order.
	Refused []string
	// Waits is why a service that other clusters export is not imported.
	Waits objects.WaitReason

	merged merge.Result
	// families are those that the service and this cluster have in common.
	families []corev1.IPFamily
	kept     keptEndpoints
}

// Decide merges what the clusters export and turns it into what this cluster should hold.
func Decide(in Input) Plan {
	merged, _ := merge.WithDemoted(in.Records, in.Demoted, in.mayDecide)
	switch {
	case merged.Empty():
		return Plan{}
	case !importable(in):
		return Plan{Waits: objects.WaitForPermission}
	}
	plan := Plan{merged: merged, families: common(merged.Spec.IPFamilies, in.Families)}
	sources := in.sources(merged.Mode)
	plan.Slices, plan.Refused = importSlices(in, merged, sources, plan.families)
	plan.Slices, plan.kept = dropUnusable(in, plan.Slices)
	for _, s := range plan.Slices {
		in.adaptSlice(s, &merged.Spec, merged.Mode)
	}
	plan.Derived = derive(in, merged, plan.families)
	return plan.withAddresses(in)
}

// withAddresses returns the plan with the ServiceImport completed from in. Decide calls it with
// what was read. The reconciler calls it again after it has written the derived Service, whose
// ClusterIPs are known only then; in.Existing, in.Derived and in.DerivedError may have changed.
func (p Plan) withAddresses(in Input) Plan {
	p.Import = importOf(in, p)
	return p
}

// sources returns the slices of all clusters in the broker's form.
func (in Input) sources(mode merge.Mode) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range in.Slices {
		if s.Labels[mcsv1beta1.LabelSourceCluster] != in.ClusterID {
			out = append(out, s)
		}
	}
	return append(out, exports.Slices(in.Own, mode)...)
}

// lacksSlices reports whether the service is new here and no exporter's slices are known. No client
// could use it, and where a derived Service comes before its slices, kube-proxy refuses connections
// for a second.
func (in Input) lacksSlices(plan Plan) bool {
	return plan.Import != nil && in.Existing == nil && len(in.Slices) == 0 && in.Own.Service == nil
}

// importable reports whether services of the namespace may be imported: a reserved namespace only
// if the broker's admin allows it. The other allowed namespaces limit only what this cluster
// exports.
func importable(in Input) bool {
	return !objects.IsReserved(in.Service.Namespace) || slices.Contains(in.AllowedNamespaces, in.Service.Namespace)
}

func importOf(in Input, plan Plan) *mcsv1beta1.ServiceImport {
	merged := plan.merged
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Service.Namespace,
			Name:      in.Service.Name,
			Labels:    map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark},
		},
		Spec: *merged.Spec.DeepCopy(), // an update decodes the server's answer into it
	}
	if merged.Mode == merge.ModeClassic {
		annotate(si, v1alpha1.AnnotationMode, v1alpha1.ModeClassic)
	}
	if merged.Prefer == v1alpha1.PreferRegion || merged.Prefer == v1alpha1.PreferCluster {
		annotate(si, v1alpha1.AnnotationPrefer, merged.Prefer)
	}
	if len(plan.families) > 0 {
		si.Spec.IPFamilies = slices.Clone(plan.families)
	}
	if merged.Mode == merge.ModeClusterSetIP {
		setAddresses(in, si)
	}
	setExported(si, merged, func(string) bool { return false })
	if in.Existing != nil {
		keepForeign(si, in.Existing)
	}
	si.Status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
	for _, c := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(merged.Clusters, in.Held.Clusters)))) {
		si.Status.Clusters = append(si.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: c})
	}
	si.Status.Conditions = conditions(in, plan, si)
	return si
}

func common(exported, local []corev1.IPFamily) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, f := range exported {
		if slices.Contains(local, f) {
			out = append(out, f)
		}
	}
	return out
}
