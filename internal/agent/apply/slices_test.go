package apply

import (
	"maps"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func slice(address string, change ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"of": "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](80)}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func annotated(s *discoveryv1.EndpointSlice) { s.Annotations = map[string]string{"x": "y"} }

func ready(value *bool) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = value }
}

func empty(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = nil, nil }

// A slice kept as a digest is compared like the whole one.
func TestSlicesWithDigestDifferLikeWholeOnes(t *testing.T) {
	for name, test := range map[string]struct {
		have   []func(*discoveryv1.EndpointSlice)
		want   *discoveryv1.EndpointSlice
		update bool
	}{
		"the same":           {nil, slice("10.0.0.1"), false},
		"another address":    {nil, slice("10.0.0.2"), true},
		"no longer ready":    {nil, slice("10.0.0.1", ready(ptr.To(false))), true},
		"readiness unknown":  {nil, slice("10.0.0.1", ready(nil)), true},
		"another port":       {nil, slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To[int32](81) }), true},
		"no endpoints":       {nil, slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }), true},
		"nothing at all":     {nil, slice("10.0.0.1", empty), true},
		"a label more":       {nil, slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Labels["x"] = "y" }), true},
		"an annotation more": {nil, slice("10.0.0.1", annotated), true},
		"the same annotation": {
			[]func(*discoveryv1.EndpointSlice){annotated}, slice("10.0.0.1", annotated), false,
		},
		"an annotation less": {[]func(*discoveryv1.EndpointSlice){annotated}, slice("10.0.0.1"), true},
		"another address and an annotation": {
			[]func(*discoveryv1.EndpointSlice){annotated}, slice("10.0.0.2", annotated), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole, digested := slice("10.0.0.1", test.have...), slice("10.0.0.1", test.have...)
			ReplaceByDigest(digested)
			ReplaceByDigest(digested) // caches may do it again
			if len(digested.Endpoints)+len(digested.Ports) > 0 {
				t.Error("nothing was dropped")
			}
			for kind, have := range map[string]*discoveryv1.EndpointSlice{"whole": whole, "digested": digested} {
				before := maps.Clone(have.Annotations)
				var c Changes
				DiffSlices(&c, []*discoveryv1.EndpointSlice{have}, []*discoveryv1.EndpointSlice{test.want})
				if got := len(c.Update) == 1; got != test.update || len(c.Create)+len(c.Delete) > 0 {
					t.Errorf("%s: %+v", kind, c)
				}
				for _, o := range c.Update {
					written := o.(*discoveryv1.EndpointSlice)
					if HasDigest(written) || !maps.Equal(written.Annotations, test.want.Annotations) ||
						len(written.Endpoints) != len(test.want.Endpoints) {
						t.Errorf("%s: would write %+v", kind, written)
					}
				}
				if !maps.Equal(have.Annotations, before) {
					t.Errorf("%s: the cached object was changed: %v", kind, have.Annotations)
				}
			}
		})
	}
}

// Slices without endpoints and ports differ from slices whose content was replaced by a digest.
func TestDigestOfEmptySlice(t *testing.T) {
	have := slice("", empty)
	ReplaceByDigest(have)
	for want, update := range map[*discoveryv1.EndpointSlice]bool{
		slice("", empty): false, slice("10.0.0.1"): true,
	} {
		var c Changes
		DiffSlices(&c, []*discoveryv1.EndpointSlice{have}, []*discoveryv1.EndpointSlice{want})
		if (len(c.Update) == 1) != update {
			t.Errorf("%+v", c)
		}
	}
}

// A client that writes something like a digest to an API server hides no change, and what is
// written to the API server has no digest.
func TestDigestFromAPIServerIsNotTrusted(t *testing.T) {
	for name, test := range map[string]struct {
		have   *discoveryv1.EndpointSlice
		update bool
	}{
		"with endpoints":    {slice("10.0.0.1"), false},
		"without endpoints": {slice("10.0.0.1", empty), true},
	} {
		test.have.GenerateName = "12345678/n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg"
		ReplaceByDigest(test.have)
		if !HasDigest(test.have) {
			t.Errorf("%s: cached with %q", name, test.have.GenerateName)
		}
		want := slice("10.0.0.1")
		var c Changes
		DiffSlices(&c, []*discoveryv1.EndpointSlice{test.have}, []*discoveryv1.EndpointSlice{want})
		if (len(c.Update) == 1) != test.update {
			t.Errorf("%s: %+v", name, c)
			continue
		}
		for _, o := range c.Update {
			written := o.(*discoveryv1.EndpointSlice)
			if written.GenerateName != "" || !slices.EqualFunc(written.Endpoints, want.Endpoints, func(a, b discoveryv1.Endpoint) bool {
				return slices.Equal(a.Addresses, b.Addresses)
			}) {
				t.Errorf("%s: would write %+v", name, written)
			}
		}
	}
}
