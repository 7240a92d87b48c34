package proxy

import (
	"maps"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
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

// Only services that have slices of a cluster whose state changed, and of another one, can change.
func TestSourcesOfServices(t *testing.T) {
	slice := func(service, cluster string, family discoveryv1.AddressType) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{AddressType: family, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{
			mcsv1beta1.LabelServiceName: service, mcsv1beta1.LabelSourceCluster: cluster}}}
	}
	all := []discoveryv1.EndpointSlice{
		slice("shared", "west", "IPv4"), slice("shared", "east", "IPv4"), slice("shared-too", "east", "IPv4"), slice("shared-too", "west", "IPv4"),
		slice("only", "west", "IPv4"), slice("only", "west", "IPv6"), slice("elsewhere", "east", "IPv4"), slice("elsewhere", "north", "IPv4"),
		slice("other-family", "west", "IPv6"), slice("other-family", "east", "IPv4"),
	}
	want := map[types.NamespacedName]sources{
		{Namespace: "ns", Name: "shared"}:       {"west", true, true},
		{Namespace: "ns", Name: "shared-too"}:   {"east", true, true},
		{Namespace: "ns", Name: "only"}:         {"west", false, true},
		{Namespace: "ns", Name: "elsewhere"}:    {"east", true, false},
		{Namespace: "ns", Name: "other-family"}: {"west", true, false},
	}
	if got := sourcesOf(all, map[reachable.Key]bool{{Cluster: "west", Family: "IPv4"}: true}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The proxy keeps the values of the properties that it reads, and no others.
func TestStripProperty(t *testing.T) {
	for name, want := range map[string]string{
		aboutv1beta1.PropertyClusterID: "value", v1alpha1.PropertyClusterSetIPRanges: "value",
		v1alpha1.PropertyUnreachableClusters: "value", "other.example": "",
	} {
		property := &aboutv1beta1.ClusterProperty{}
		property.Name, property.Spec.Value = name, "value"
		if _, err := stripProperty(property); err != nil || property.Spec.Value != want {
			t.Errorf("the value of %s became %q: %v", name, property.Spec.Value, err)
		}
	}
}
