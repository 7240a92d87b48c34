package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

func importEvent(kind watch.EventType, ips ...string) watch.Event {
	return watch.Event{Type: kind, Object: &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: mcsv1beta1.ServiceImportSpec{IPs: ips},
	}}
}

func sliceEvent(kind watch.EventType, serviceName string, ready bool) watch.Event {
	return watch.Event{Type: kind, Object: &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{
			mcsv1beta1.LabelServiceName: "web", discoveryv1.LabelServiceName: serviceName,
		}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)}}},
	}}
}

func derivedEvent(kind watch.EventType) watch.Event {
	return watch.Event{Type: kind, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name:   objects.DerivedServiceName("web"),
		Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark, mcsv1beta1.LabelServiceName: "web"},
	}}}
}

func TestUsableMeansAddressAndReachableEndpoints(t *testing.T) {
	const added, modified, deleted = watch.Added, watch.Modified, watch.Deleted
	const ip = "243.0.0.1"
	derived := objects.DerivedServiceName("web")
	for name, test := range map[string]struct {
		derives bool
		events  []watch.Event
		want    []string
	}{
		"an import without address": {
			events: []watch.Event{importEvent(added), sliceEvent(added, "x", true)},
			want:   []string{factObjects("web")},
		},
		"an import without endpoints": {
			events: []watch.Event{importEvent(added, ip)},
			want:   []string{factIP("web")},
		},
		"endpoints that are not ready": {
			events: []watch.Event{importEvent(added, ip), sliceEvent(added, "x", false)},
			want:   []string{factIP("web")},
		},
		"address and endpoints": {
			events: []watch.Event{sliceEvent(added, "x", true), importEvent(added), importEvent(modified, ip)},
			want:   []string{factObjects("web"), factIP("web"), factUsable("web")},
		},
		"a derived Service is missing": {
			derives: true, events: []watch.Event{importEvent(added, ip), sliceEvent(added, derived, true)},
			want: []string{factObjects("web"), factIP("web")},
		},
		"slices without the name of the derived Service": {
			derives: true, events: []watch.Event{derivedEvent(added), importEvent(added, ip), sliceEvent(added, "x", true)},
			want: []string{factIP("web")},
		},
		"a derived Service, address and endpoints": {
			derives: true, events: []watch.Event{derivedEvent(added), importEvent(added, ip), sliceEvent(added, derived, true)},
			want: []string{factObjects("web"), factIP("web"), factUsable("web")},
		},
		"a slice that is replaced before the import exists": {
			events: []watch.Event{sliceEvent(added, "x", true), sliceEvent(deleted, "x", true)},
		},
		"a slice is left": {
			events: []watch.Event{importEvent(added, ip), sliceEvent(added, "x", true), importEvent(deleted, ip)},
			want:   []string{factObjects("web"), factIP("web"), factUsable("web")},
		},
		"the derived Service is left": {
			derives: true, events: []watch.Event{
				derivedEvent(added), importEvent(added, ip), sliceEvent(added, derived, true),
				importEvent(deleted, ip), sliceEvent(deleted, derived, true),
			},
			want: []string{factObjects("web"), factIP("web"), factUsable("web")},
		},
		"nothing is left": {
			derives: true, events: []watch.Event{
				derivedEvent(added), importEvent(added, ip), sliceEvent(added, derived, true),
				sliceEvent(deleted, derived, true), derivedEvent(deleted), importEvent(deleted, ip),
			},
			want: []string{factObjects("web"), factIP("web"), factUsable("web"), factGone("web")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observer{derives: test.derives, facts: map[string]*fact{}, services: map[string]*imported{}}
			for _, event := range test.events {
				o.record(event, time.Now())
			}
			want := map[string]bool{}
			for _, what := range test.want {
				want[what] = true
			}
			for _, what := range []string{factObjects("web"), factIP("web"), factUsable("web"), factGone("web")} {
				if seen := !o.fact(what).at.IsZero(); seen != want[what] {
					t.Errorf("%s: seen %t, want %t", what, seen, want[what])
				}
			}
		})
	}
}

func TestUnknownSelectionsAreRefused(t *testing.T) {
	for list, want := range map[string]int{"": len(sections), "usable": 2, "idle,usable": 3} {
		if got, err := selectSections(list); err != nil || len(got) != want {
			t.Errorf("-only %q: %d sections, %v; want %d", list, len(got), err, want)
		}
	}
	if _, err := selectSections("two"); err == nil {
		t.Error("-only two was accepted")
	}
	if planes, err := selectPlanes("both"); err != nil || len(planes) != 2 {
		t.Errorf("both: %v, %v", planes, err)
	}
	if _, err := selectPlanes("none"); err == nil {
		t.Error("-data-plane none was accepted")
	}
}
