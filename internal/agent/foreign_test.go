package agent

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/limits"
	"github.com/seamark-dev/seamark/internal/objects"
)

func foreignOf(own string) *foreignContent {
	return &foreignContent{own, limits.NewContent(), func(string) objects.Limits { return objects.Limits{Services: 1, Endpoints: 2, Bytes: 1000} }}
}

func metaOf(name, member string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{mcsv1beta1.LabelSourceCluster: member, v1alpha1.LabelWrittenBy: member, "x": "y"},
		Annotations: map[string]string{"x": strings.Repeat("x", 500), v1alpha1.AnnotationRegion: "eu"},
	}
}

// Labels, annotations and fields that no agent reads are not cached. This cluster's own objects
// stay as they are.
func TestForeignObjectsAreStripped(t *testing.T) {
	f := foreignOf("north")
	endpoint := discoveryv1.Endpoint{
		Addresses: []string{"10.0.0.1", "10.0.0.2"}, NodeName: ptr.To("n"), DeprecatedTopology: map[string]string{"x": "y"},
	}
	for member, stripped := range map[string]bool{"north": false, "evil": true} {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metaOf("s", member), Endpoints: []discoveryv1.Endpoint{endpoint}}
		r := &v1alpha1.ExportRecord{ObjectMeta: metaOf("r", member)}
		f.strip(s)
		f.strip(r)
		got := s.Labels["x"] == "" && r.Labels["x"] == "" && s.Annotations["x"] == "" && len(r.Annotations) == 0
		e := s.Endpoints[0]
		if got != stripped || (len(e.Addresses) == 1 && e.DeprecatedTopology == nil) != stripped {
			t.Errorf("%s: stripped %t, endpoint %+v", member, got, e)
		}
		if s.Annotations[v1alpha1.AnnotationRegion] != "eu" || s.Labels[mcsv1beta1.LabelSourceCluster] != member || e.Addresses[0] != "10.0.0.1" {
			t.Errorf("%s: what is read is lost: %+v", member, s)
		}
	}
}

// Beyond twice its limits nothing of a member is held but names. Aggregates count for their writer.
func TestForeignContentIsDropped(t *testing.T) {
	f := foreignOf("north")
	for i, want := range []bool{false, false, true, true} {
		name := string(rune('a' + i))
		r := &v1alpha1.ExportRecord{ObjectMeta: metaOf(name, "evil"), Spec: v1alpha1.ExportRecordSpec{
			ServiceName: name, ClusterID: "evil", Ports: []v1alpha1.ServicePort{{Name: "http"}},
		}}
		s := &discoveryv1.EndpointSlice{ObjectMeta: metaOf(name, "evil"), Endpoints: make([]discoveryv1.Endpoint, 2)}
		si := &mcsv1beta1.ServiceImport{ObjectMeta: metaOf(name, "evil"), Spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"243.0.0.1"}}}
		for range 2 { // caches may transform an object twice
			f.strip(r)
			f.strip(s)
			f.strip(si)
		}
		for kind, got := range map[string]bool{
			"record": index.IsDropped(r) && len(r.Spec.Ports) == 0, "slice": index.IsDropped(s) && len(s.Endpoints) == 0,
			"aggregate": index.IsDropped(si) && len(si.Spec.IPs) == 0,
		} {
			if got != want && (kind != "aggregate" || i > 2) { // two aggregates have more bytes than twice the limit allows
				t.Errorf("%s %d: dropped %t, want %t", kind, i, got, want)
			}
		}
		if r.Spec.ServiceName != name || r.Labels[mcsv1beta1.LabelSourceCluster] != "evil" {
			t.Errorf("the name is lost: %+v", r)
		}
	}
}
