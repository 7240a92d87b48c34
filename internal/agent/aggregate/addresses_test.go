package aggregate

import (
	"slices"
	"testing"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// claiming returns a record of this version that claims clusterset IPs.
func claiming(cluster string, age int, ips ...string) *v1alpha1.ExportRecord {
	r := record(cluster, age)
	r.Spec.ClusterSetIPs, r.Spec.MergeVersion = ips, 1
	return r
}

func TestAggregateShowsTheClusterSetIPsOfTheRecords(t *testing.T) {
	shown := func(ips ...string) *mcsv1beta1.ServiceImport {
		si := written(record("old", 2))
		si.Spec.IPs = ips
		si.Annotations[v1alpha1.AnnotationAllocatedBy] = "gone"
		return si
	}
	for name, test := range map[string]struct {
		records  []*v1alpha1.ExportRecord
		existing *mcsv1beta1.ServiceImport
		ips      []string
		by       string
	}{
		"claimed": {[]*v1alpha1.ExportRecord{claiming("old", 2, "243.0.0.1")}, nil, []string{"243.0.0.1"}, "old"},
		"two families of two clusters": {
			[]*v1alpha1.ExportRecord{claiming("old", 2, "243.0.0.1"), claiming("new", 1, "fd00:243::1")}, nil,
			[]string{"243.0.0.1", "fd00:243::1"}, "old",
		},
		"not claimed":               {[]*v1alpha1.ExportRecord{claiming("old", 2)}, shown("243.0.0.9"), nil, ""},
		"written by another client": {[]*v1alpha1.ExportRecord{claiming("old", 2, "243.0.0.1")}, shown("243.0.0.9"), []string{"243.0.0.1"}, "old"},
		"its block has no owner": {
			[]*v1alpha1.ExportRecord{claiming("old", 2, "243.7.0.1")}, shown("243.7.0.1"), []string{"243.7.0.1"}, "gone",
		},
		"an earlier agent exports it": {[]*v1alpha1.ExportRecord{record("old", 2)}, shown("243.7.0.1"), []string{"243.7.0.1"}, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			want := decide(Input{ClusterID: "old", Service: web, Records: test.records, Existing: test.existing}).Want
			if !slices.Equal(want.Spec.IPs, test.ips) || want.Annotations[v1alpha1.AnnotationAllocatedBy] != test.by ||
				want.Annotations[v1alpha1.AnnotationAllocatedByAlias] != test.by {
				t.Errorf("ips %v, annotations %v", want.Spec.IPs, want.Annotations)
			}
		})
	}
}

// Spec 5: the aggregate says whether the service uses a clusterset IP.
func TestAggregateSaysWhetherTheServiceUsesAClusterSetIP(t *testing.T) {
	classic, headless := record("a", 1), record("a", 1)
	classic.Spec.UseClusterSetIP, headless.Spec.Type = false, mcsv1beta1.Headless
	for value, r := range map[string]*v1alpha1.ExportRecord{"true": record("a", 1), "false": classic, "": headless} {
		got := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{r}}).Want.Annotations
		if got[v1alpha1.AnnotationUseClusterSetIP] != value || got[v1alpha1.AnnotationUseClusterSetIPAlias] != value {
			t.Errorf("%q: %v", value, got)
		}
	}
}
