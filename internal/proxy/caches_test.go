package proxy

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Endpoints share what they have in common, and keep what selects them.
func TestStripSlice(t *testing.T) {
	strip := newStripSlice("here")
	slice := func(annotations map[string]string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		for _, node := range []*string{nil, ptr.To(""), ptr.To("here"), ptr.To("there"), ptr.To("beyond")} {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{"10.0.0.1"}, NodeName: node, Zone: ptr.To("zone"), Hostname: ptr.To("host"),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Terminating: ptr.To(false)},
			})
		}
		if _, err := strip(s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := slice(nil)
	for i, want := range []*string{nil, ptr.To(""), ptr.To("here"), &anotherNode, &anotherNode} {
		e := s.Endpoints[i]
		if !ptr.Equal(e.NodeName, want) || e.Hostname != nil || *e.Zone != "zone" || !*e.Conditions.Ready || e.Conditions.Serving != nil ||
			*e.Conditions.Terminating {
			t.Errorf("endpoint %d became %+v", i, e)
		}
	}
	if a, b := s.Endpoints[3], slice(nil).Endpoints[4]; a.NodeName != b.NodeName || a.Zone != b.Zone || a.Conditions.Ready != b.Conditions.Ready {
		t.Error("two endpoints share nothing")
	}
	withRegions := slice(map[string]string{v1alpha1.AnnotationNodeRegions: `{"there":"r"}`})
	if name := *withRegions.Endpoints[3].NodeName; name != "there" {
		t.Errorf("a node with a region became %s", name)
	}
}
