package merge_test

import (
	"slices"
	"testing"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

func recordOf(cluster string, after int, options ...mergetest.Option) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{Spec: mergetest.Record(cluster, after, options...)}
}

func TestDemotedClustersComeLast(t *testing.T) {
	a, b, c := recordOf("a", 1), recordOf("b", 2), recordOf("c", 3)
	for name, test := range map[string]struct {
		records []*v1alpha1.ExportRecord
		demoted []string
		want    []string
	}{
		"none":                  {[]*v1alpha1.ExportRecord{a, b, c}, nil, []string{"a", "b", "c"}},
		"the oldest":            {[]*v1alpha1.ExportRecord{a, b, c}, []string{"a"}, []string{"b", "c", "a"}},
		"two, in their order":   {[]*v1alpha1.ExportRecord{c, b, a}, []string{"a", "b"}, []string{"c", "a", "b"}},
		"the youngest":          {[]*v1alpha1.ExportRecord{a, b, c}, []string{"c"}, []string{"a", "b", "c"}},
		"all":                   {[]*v1alpha1.ExportRecord{a, b, c}, []string{"a", "b", "c"}, []string{"a", "b", "c"}},
		"of another service":    {[]*v1alpha1.ExportRecord{a, b}, []string{"c"}, []string{"a", "b"}},
		"of the same second":    {[]*v1alpha1.ExportRecord{a, recordOf("b", 1)}, []string{"a"}, []string{"b", "a"}},
		"the only one":          {[]*v1alpha1.ExportRecord{a}, []string{"a"}, []string{"a"}},
		"without records":       {nil, []string{"a"}, nil},
		"of which one is old":   {[]*v1alpha1.ExportRecord{a, b, c}, []string{"a", "c"}, []string{"b", "a", "c"}},
		"of an unknown cluster": {[]*v1alpha1.ExportRecord{a, b}, []string{"unknown"}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			demoted := map[string]bool{}
			for _, id := range test.demoted {
				demoted[id] = true
			}
			before := a.Spec.ExportedAt
			if got := merge.Merge(merge.Demote(test.records, demoted)).Clusters; !slices.Equal(got, test.want) {
				t.Errorf("precedence %v, want %v", got, test.want)
			}
			if !a.Spec.ExportedAt.Equal(&before) {
				t.Error("a record of the cache was changed")
			}
		})
	}
}

// The oldest export is headless, and its cluster is demoted. The younger one decides when it is
// ready to.
func TestDemotionCountsWhenTheOthersAreReady(t *testing.T) {
	headless, younger := recordOf("a", 1, mergetest.Headless()), recordOf("b", 2)
	demoted := map[string]bool{"a": true}
	for _, ready := range []bool{false, true} {
		asked := false
		got, changed := merge.WithDemoted([]*v1alpha1.ExportRecord{headless, younger}, demoted, func(after merge.Result) bool {
			asked = after.Spec.Type == mcsv1beta1.ClusterSetIP
			return ready
		})
		if !asked || changed != ready || (got.Spec.Type == mcsv1beta1.ClusterSetIP) != ready {
			t.Errorf("ready %t: changed %t, %s", ready, changed, got.Spec.Type)
		}
	}
	// If all clusters still take part, no endpoint can be missing.
	got, changed := merge.WithDemoted([]*v1alpha1.ExportRecord{recordOf("a", 1), younger}, demoted, func(merge.Result) bool {
		t.Error("asked although no cluster is left out")
		return false
	})
	if !changed || !slices.Equal(got.Clusters, []string{"b", "a"}) {
		t.Errorf("changed %t, precedence %v", changed, got.Clusters)
	}
}
