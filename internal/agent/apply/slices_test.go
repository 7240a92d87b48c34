package apply

import (
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

// A slice kept as a digest is compared like the whole one.
func TestShortenedSlicesDifferLikeWholeOnes(t *testing.T) {
	for name, test := range map[string]struct {
		want   *discoveryv1.EndpointSlice
		update bool
	}{
		"the same":           {slice("10.0.0.1"), false},
		"another address":    {slice("10.0.0.2"), true},
		"no longer ready":    {slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = ptr.To(false) }), true},
		"readiness unknown":  {slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = nil }), true},
		"another port":       {slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To[int32](81) }), true},
		"no endpoints":       {slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }), true},
		"nothing at all":     {slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = nil, nil }), true},
		"a label more":       {slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Labels["x"] = "y" }), true},
		"an annotation more": {slice("10.0.0.1", func(s *discoveryv1.EndpointSlice) { s.Annotations = map[string]string{"x": "y"} }), true},
	} {
		t.Run(name, func(t *testing.T) {
			whole, short := slice("10.0.0.1"), slice("10.0.0.1")
			ReplaceByDigest(short)
			ReplaceByDigest(short) // caches may do it again
			if len(short.Endpoints)+len(short.Ports) > 0 {
				t.Error("nothing was dropped")
			}
			for kind, have := range map[string]*discoveryv1.EndpointSlice{"whole": whole, "shortened": short} {
				var c Changes
				DiffSlices(&c, []*discoveryv1.EndpointSlice{have}, []*discoveryv1.EndpointSlice{test.want})
				if got := len(c.Update) == 1; got != test.update || len(c.Create)+len(c.Delete) > 0 {
					t.Errorf("%s: %+v", kind, c)
				}
				for _, o := range c.Update {
					written := o.(*discoveryv1.EndpointSlice)
					if written.GetSelfLink() != "" || len(written.Endpoints) != len(test.want.Endpoints) {
						t.Errorf("%s: would write %+v", kind, written)
					}
				}
			}
		})
	}
}

// Slices without endpoints and ports are told apart from slices that were shortened.
func TestShortenEmpty(t *testing.T) {
	empty := slice("", func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = nil, nil })
	ReplaceByDigest(empty)
	for want, update := range map[*discoveryv1.EndpointSlice]bool{
		slice("", func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = nil, nil }): false, slice("10.0.0.1"): true,
	} {
		var c Changes
		DiffSlices(&c, []*discoveryv1.EndpointSlice{empty}, []*discoveryv1.EndpointSlice{want})
		if (len(c.Update) == 1) != update {
			t.Errorf("%+v", c)
		}
	}
}
