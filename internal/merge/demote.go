package merge

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// WithDemoted merges the records of clusters of which some are demoted: they have no precedence
// over the others. If a cluster then takes no part in the service any more, or loses a port, the
// others must be ready: clusters that took no part before publish no endpoints until they learn
// that they do, and a service must not lose its last endpoints. mayDecide reports that, given what
// the others decide. changed reports whether the demotion counts.
func WithDemoted(records []*v1alpha1.ExportRecord, demoted map[string]bool, mayDecide func(Result) bool) (result Result, changed bool) {
	before := Merge(records)
	reordered := Demote(records, demoted)
	if len(records) == 0 || &reordered[0] == &records[0] {
		return before, false
	}
	after := Merge(reordered)
	if slices.ContainsFunc(records, func(r *v1alpha1.ExportRecord) bool { return losesPart(&r.Spec, before, after) }) && !mayDecide(after) {
		return before, false
	}
	return after, true
}

// losesPart reports whether a cluster contributes less to one merged service than to another.
func losesPart(r *v1alpha1.ExportRecordSpec, before, after Result) bool {
	cluster := string(r.ClusterID)
	return slices.Contains(before.Clusters, cluster) && !slices.Contains(after.Clusters, cluster) ||
		slices.ContainsFunc(r.Ports, func(p v1alpha1.ServicePort) bool {
			return before.CarriesPort(cluster, p.Name, p.Protocol) && !after.CarriesPort(cluster, p.Name, p.Protocol)
		})
}

// Demote returns the records of one service with those of demoted clusters made younger than all
// others, in their order. It returns the same records if that changes nothing, or if only demoted
// clusters export the service.
func Demote(records []*v1alpha1.ExportRecord, demoted map[string]bool) []*v1alpha1.ExportRecord {
	var oldest, youngest *metav1.Time // of the demoted, and of the others
	for _, r := range records {
		at := &r.Spec.ExportedAt
		switch {
		case !demoted[string(r.Spec.ClusterID)]:
			if youngest == nil || youngest.Before(at) {
				youngest = at
			}
		case oldest == nil || at.Before(oldest):
			oldest = at
		}
	}
	if oldest == nil || youngest == nil || youngest.Before(oldest) {
		return records
	}
	shift := youngest.Unix() - oldest.Unix() + 1
	out := make([]*v1alpha1.ExportRecord, len(records))
	for i, r := range records {
		if demoted[string(r.Spec.ClusterID)] {
			younger := *r // the cache shares r
			younger.Spec.ExportedAt = metav1.Unix(r.Spec.ExportedAt.Unix()+shift, 0)
			r = &younger
		}
		out[i] = r
	}
	return out
}
