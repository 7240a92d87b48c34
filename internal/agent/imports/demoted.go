package imports

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// mayDecide reports whether the clusters that are not demoted may decide about the service: all
// that are not stale have published their endpoints, and one of them is ready. Once they have
// decided, it stays so: the service does not change with their readiness.
func (in Input) mayDecide(merged merge.Result) bool {
	if in.Existing == nil || in.hasDecided(merged) {
		return true
	}
	published, ready := sets.New[string](), false
	for _, s := range in.sources(merged.Mode) {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		if !in.Stale[source] && slices.Contains(merged.Clusters, source) {
			published.Insert(source)
			ready = ready || objects.HasReadyEndpoint(s)
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
