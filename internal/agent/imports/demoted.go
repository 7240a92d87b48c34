package imports

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// mayDecide reports whether the clusters that are not demoted may decide about the service: all
// that are not stale have published their endpoints, and one of them is ready at a port that the
// service would have. Once they have decided, it stays so: the service does not change with their
// readiness.
func (in Input) mayDecide(merged merge.Result) bool {
	if in.Existing == nil || in.hasDecided(merged) {
		return true
	}
	published, ready := sets.New[string](), false
	for _, s := range in.sources(merged.Mode) {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		carries := func(name string, protocol corev1.Protocol) bool { return merged.CarriesPort(source, name, protocol) }
		if !in.Stale[source] && slices.Contains(merged.Clusters, source) {
			published.Insert(source)
			ready = ready || reachable.HasReadyEndpoint(s) && reachable.HasPort(s, carries)
		}
	}
	missing := func(cluster string) bool { return !in.Stale[cluster] && !published.Has(cluster) }
	return ready && !slices.ContainsFunc(merged.Clusters, missing)
}

// hasDecided reports whether this cluster's import is as the merge says.
func (in Input) hasDecided(merged merge.Result) bool {
	have := &in.Existing.Spec
	return have.Type == merged.Spec.Type && slices.Equal(have.IPFamilies, common(merged.Spec.IPFamilies, in.Families)) &&
		equality.Semantic.DeepEqual(have.Ports, merged.Spec.Ports)
}
