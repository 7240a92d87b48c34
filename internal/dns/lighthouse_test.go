package dns

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/zone"
)

func TestImportsOfLighthouse(t *testing.T) {
	seamark := map[string]string{"app.kubernetes.io/managed-by": "seamark"}
	lighthouse := map[string]string{v1alpha1.AnnotationUseClusterSetIPAlias: "false"}
	tests := []struct {
		name                string
		labels, annotations map[string]string
		ips                 []string
		headless            bool
		want                zone.Kind
		internal            bool
	}{
		{"without an address", nil, lighthouse, nil, false, zone.Classic, false},
		{"with an address", nil, map[string]string{v1alpha1.AnnotationUseClusterSetIPAlias: "true"}, []string{"243.0.0.1"}, false,
			zone.ClusterSetIP, false},
		{"headless", nil, lighthouse, nil, true, zone.Headless, false},
		{"taken over, classic", seamark, map[string]string{v1alpha1.AnnotationMode: v1alpha1.ModeClassic}, nil, false, zone.Classic, false},
		{"taken over by Seamark, without its address yet", seamark, lighthouse, nil, false, zone.ClusterSetIP, false},
		{"of another tool, without its address yet", nil, nil, nil, false, zone.ClusterSetIP, false},
		{"what a cluster contributes", map[string]string{mcsv1beta1.LabelServiceName: "web"}, lighthouse, []string{"10.96.0.1"}, false,
			zone.ClusterSetIP, true},
		{"aggregate on the broker", nil, map[string]string{mcsv1beta1.LabelServiceName: "web"}, nil, false, zone.ClusterSetIP, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			si := &mcsv1beta1.ServiceImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: test.labels, Annotations: test.annotations},
				Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: test.ips},
			}
			if test.headless {
				si.Spec.Type = mcsv1beta1.Headless
			}
			reduced, err := reduceImport(si)
			if err != nil {
				t.Fatal(err)
			}
			if got := reduced.(*importObject); got.Kind != test.want || got.internal != test.internal {
				t.Errorf("kind %v, internal %v, want %v and %v", got.Kind, got.internal, test.want, test.internal)
			}
		})
	}
}

// An import that becomes internal, or the other way round, is removed or added.
func TestInternalImportsHaveNoName(t *testing.T) {
	s := newState(zone.Locality{})
	object := func(internal bool) *importObject {
		return &importObject{Service: zone.Service{Namespace: "shop", Name: "web", Kind: zone.Classic}, internal: internal}
	}
	for _, internal := range []bool{false, true, false} {
		s.setImport(object(internal))
		if _, known := s.imports[zone.Key("shop", "web")]; known == internal {
			t.Errorf("internal %v: known %v", internal, known)
		}
	}
}

func TestSlicesOfBoth(t *testing.T) {
	slice := func(cluster, managedBy, address string) *zone.Slice {
		reduced, err := reduceSlice(&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{
				mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: cluster, discoveryv1.LabelManagedBy: managedBy,
			}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return reduced.(*sliceObject).slice
	}
	const lighthouse, seamark = v1alpha1.ManagedByLighthouse, "agent.seamark.dev"
	tests := []struct {
		name    string
		managed bool
		all     []*zone.Slice
		want    []string
	}{
		{"Lighthouse alone", false, []*zone.Slice{slice("east", lighthouse, "1.1.1.1"), slice("west", lighthouse, "2.2.2.2")},
			[]string{"1.1.1.1", "2.2.2.2"}},
		{"Seamark alone", true, []*zone.Slice{slice("east", seamark, "1.1.1.1")}, []string{"1.1.1.1"}},
		{"both of one cluster", false, []*zone.Slice{slice("east", lighthouse, "1.1.1.1"), slice("east", seamark, "3.3.3.3")}, []string{"3.3.3.3"}},
		{"one of each", false, []*zone.Slice{
			slice("east", lighthouse, "1.1.1.1"), slice("West", seamark, "3.3.3.3"), slice("west", lighthouse, "2.2.2.2"),
		}, []string{"1.1.1.1", "3.3.3.3"}},
		{"taken over by Seamark", true, []*zone.Slice{slice("east", lighthouse, "1.1.1.1"), slice("west", seamark, "3.3.3.3")}, []string{"3.3.3.3"}},
	}
	for _, test := range tests {
		var got []string
		before := slices.Clone(test.all)
		for _, s := range leaveOutReplaced(zone.Service{Managed: test.managed, Slices: test.all}) {
			got = append(got, s.Endpoints[0].Addr.String())
		}
		if !slices.Equal(got, test.want) || !slices.Equal(before, test.all) {
			t.Errorf("%s: got %v, want %v, and the input unchanged", test.name, got, test.want)
		}
	}
}
