package imports

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// The oldest exporter is headless, stale and demoted. The living ones decide when they are ready,
// and what they decided stays.
func TestWhenTheLivingDecide(t *testing.T) {
	headless := func(r *v1alpha1.ExportRecordSpec) { r.Type = mcsv1beta1.Headless }
	records := []*v1alpha1.ExportRecord{record("dead", 9, headless), record("a", 2), record("b", 1)}
	a, b, unreadyA := slice("a", "s", "10.1.0.1"), slice("b", "s", "10.2.0.1"), unready(slice("a", "s", "10.1.0.1"))
	// before and after are what is imported while the dead cluster decides and when the living do.
	before, after := map[string][]string{"dead": {"10.9.0.1"}}, map[string][]string{"a": {"10.1.0.1"}, "b": {"10.2.0.1"}}
	ports := []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	for name, test := range map[string]struct {
		existing mcsv1beta1.ServiceImportType
		living   []*discoveryv1.EndpointSlice
		want     map[string][]string
	}{
		"no living cluster has published": {mcsv1beta1.Headless, nil, before},
		"one has not published":           {mcsv1beta1.Headless, []*discoveryv1.EndpointSlice{a}, before},
		"none is ready":                   {mcsv1beta1.Headless, []*discoveryv1.EndpointSlice{unreadyA, slice("b", "s")}, before},
		"all have published":              {mcsv1beta1.Headless, []*discoveryv1.EndpointSlice{a, b}, after},
		"they decided, and none is ready any more": {
			mcsv1beta1.ClusterSetIP, []*discoveryv1.EndpointSlice{unreadyA}, map[string][]string{"a": {"10.1.0.1"}},
		},
		"the service is new here": {"", []*discoveryv1.EndpointSlice{a}, map[string][]string{"a": {"10.1.0.1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(records, append([]*discoveryv1.EndpointSlice{slice("dead", "s", "10.9.0.1")}, test.living...)...)
			in.Stale, in.Demoted = map[string]bool{"dead": true}, map[string]bool{"dead": true}
			if test.existing != "" {
				spec := mcsv1beta1.ServiceImportSpec{Type: test.existing, IPFamilies: in.Families, Ports: ports}
				in.Existing = &mcsv1beta1.ServiceImport{Spec: spec}
			}
			if diff := cmp.Diff(test.want, addressesOf(Decide(in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The living exporter has another number for the port, and no endpoint is ready: the dead cluster's
// endpoints stay.
func TestDemotionDoesNotEmptyAPort(t *testing.T) {
	other := func(r *v1alpha1.ExportRecordSpec) { r.Ports[0].Port = 8080 }
	records := []*v1alpha1.ExportRecord{record("dead", 9), record("a", 2, other)}
	for _, ready := range []bool{false, true} {
		living, want := slice("a", "s", "10.1.0.1"), map[string][]string{"a": {"10.1.0.1"}}
		if !ready {
			unready(living)
			want = map[string][]string{"dead": {"10.9.0.1"}}
		}
		in := input(records, slice("dead", "s", "10.9.0.1"), living)
		in.Stale, in.Demoted = map[string]bool{"dead": true}, map[string]bool{"dead": true}
		in.Existing = &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPFamilies: in.Families,
			Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		}}
		got := map[string][]string{}
		for _, s := range Decide(in).Slices {
			if len(s.Ports) > 0 {
				got[s.Labels[mcsv1beta1.LabelSourceCluster]] = s.Endpoints[0].Addresses
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ready %t: %s", ready, diff)
		}
	}
}
