package dns

import (
	"net/netip"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/zone"
)

func reducedImport(t *testing.T, kind mcsv1beta1.ServiceImportType) *importObject {
	t.Helper()
	o, err := reduceImport(&mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: kind, IPs: []string{"243.0.0.1", "no address"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o.(*importObject)
}

func reducedSlice(t *testing.T, version, address string) *sliceObject {
	t.Helper()
	o, err := reduceSlice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "slice", ResourceVersion: version, Labels: map[string]string{
			mcsv1beta1.LabelServiceName: "svc", mcsv1beta1.LabelSourceCluster: "west"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}},
			{Addresses: []string{"10.0.0.99"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o.(*sliceObject)
}

// content returns the first address of the one slice, or "nothing" if its content was not stored.
func (s *state) content() string {
	h := s.slices["ns/slice"]
	switch {
	case h == nil:
		return "no slice"
	case h.slice == nil:
		return "nothing"
	}
	return h.slice.Endpoints[0].Addr.String()
}

// Slices are stored with their content exactly while an answer may need it.
func TestSlicesAreKeptWhileNeeded(t *testing.T) {
	s := newState(zone.Locality{})
	expect := func(when, want string) {
		t.Helper()
		if got := s.content(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	s.setSlice(reducedSlice(t, "5", "10.0.0.1"))
	expect("before its import", "10.0.0.1")
	s.setImport(reducedImport(t, mcsv1beta1.ClusterSetIP))
	expect("with a clusterset IP", "nothing")
	s.setSlice(reducedSlice(t, "6", "10.0.0.2"))
	expect("changed, with a clusterset IP", "nothing")
	s.setImport(reducedImport(t, mcsv1beta1.Headless))
	j, _ := s.nextJob()
	if !j.incomplete || !j.fetch || s.fetchDone("svc.ns") {
		t.Errorf("a service whose slices have no content: %+v", j)
	}
	s.markDirty("svc.ns")
	if j, _ := s.nextJob(); !j.incomplete || j.fetch {
		t.Errorf("its slices are read twice: %+v", j)
	}
	s.restoreContent("svc.ns", []*sliceObject{reducedSlice(t, "5", "10.0.0.1")})
	expect("after an older answer", "nothing")
	s.restoreContent("svc.ns", []*sliceObject{reducedSlice(t, "6", "10.0.0.2")})
	expect("after the answer", "10.0.0.2")
	if !s.fetchDone("svc.ns") {
		t.Error("all slices are complete, but fetching goes on")
	}
	s.restoreContent("svc.ns", []*sliceObject{reducedSlice(t, "7", "10.0.0.3")})
	expect("after an answer that is not needed", "10.0.0.2")
	s.removeSlice("ns", "slice")
	s.restoreContent("svc.ns", []*sliceObject{reducedSlice(t, "8", "10.0.0.3")})
	expect("deleted before the answer came", "no slice")
}

func TestReduce(t *testing.T) {
	si := reducedImport(t, mcsv1beta1.ClusterSetIP)
	if !slices.Equal(si.IPs, []netip.Addr{netip.MustParseAddr("243.0.0.1")}) {
		t.Errorf("addresses %v", si.IPs)
	}
	twice, err := reduceImport(si)
	if err != nil || twice != si {
		t.Errorf("reduced twice: %v, %v", twice, err)
	}
	if _, err := reduceImport(&discoveryv1.EndpointSlice{}); err == nil {
		t.Error("a slice was taken for an import")
	}
	if s := reducedSlice(t, "1", "10.0.0.1"); len(s.slice.Endpoints) != 1 || s.slice.Weight != 1 || s.service != "svc.ns" {
		t.Errorf("slice %+v", s.slice)
	}
	for text, want := range map[string]uint8{"": 1, "0": 0, "255": 255, "256": 1, "-1": 1, "x": 1} {
		if got := weightOf(map[string]string{v1alpha1.AnnotationWeight: text}); got != want {
			t.Errorf("weight %q: %d, want %d", text, got, want)
		}
	}
}
