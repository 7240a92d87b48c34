package bench

import (
	"testing"

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

func TestUsableMeansClusterSetIPAndReachableEndpoints(t *testing.T) {
	const added, modified, deleted = watch.Added, watch.Modified, watch.Deleted
	const ip = "243.0.0.1"
	derived := objects.DerivedServiceName("web")
	type facts struct{ objects, ip, usable, gone bool }
	for name, test := range map[string]struct {
		needsDerived bool
		events       []watch.Event
		want         facts
	}{
		"no clusterset IP":             {events: []watch.Event{importEvent(added), sliceEvent(added, "x", true)}, want: facts{objects: true}},
		"no endpoints":                 {events: []watch.Event{importEvent(added, ip)}, want: facts{ip: true}},
		"endpoints that are not ready": {events: []watch.Event{importEvent(added, ip), sliceEvent(added, "x", false)}, want: facts{ip: true}},
		"clusterset IP and endpoints": {
			events: []watch.Event{sliceEvent(added, "x", true), importEvent(added), importEvent(modified, ip)},
			want:   facts{objects: true, ip: true, usable: true},
		},
		"no derived Service": {
			needsDerived: true, events: []watch.Event{importEvent(added, ip), sliceEvent(added, derived, true)},
			want: facts{objects: true, ip: true},
		},
		"no derived Service, which the slice names": {
			events: []watch.Event{importEvent(added, ip), sliceEvent(added, derived, true)},
			want:   facts{objects: true, ip: true},
		},
		"a slice that does not name the derived Service": {
			needsDerived: true, events: []watch.Event{derivedEvent(added), importEvent(added, ip), sliceEvent(added, "x", true)},
			want: facts{ip: true},
		},
		"derived Service, clusterset IP and endpoints": {
			needsDerived: true, events: []watch.Event{derivedEvent(added), importEvent(added, ip), sliceEvent(added, derived, true)},
			want: facts{objects: true, ip: true, usable: true},
		},
		"a slice that is replaced before the import exists": {
			events: []watch.Event{sliceEvent(added, "x", true), sliceEvent(deleted, "x", true)},
		},
		"a slice is left": {events: []watch.Event{importEvent(added, ip), sliceEvent(added, "x", true), importEvent(deleted, ip)}},
		"the derived Service is left": {
			events: []watch.Event{
				derivedEvent(added), importEvent(added, ip), sliceEvent(added, derived, true),
				importEvent(deleted), sliceEvent(deleted, derived, true),
			},
		},
		"nothing is left": {
			events: []watch.Event{
				derivedEvent(added), importEvent(added, ip), sliceEvent(added, derived, true),
				sliceEvent(deleted, derived, true), derivedEvent(deleted), importEvent(deleted),
			},
			want: facts{gone: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := &Imported{NeedsDerived: test.needsDerived}
			for _, event := range test.events {
				if of := ServiceOf(event.Object); of != "web" {
					t.Errorf("%T is of service %q", event.Object, of)
				}
				i.Update(event)
			}
			if got := (facts{i.HasObjects(), i.HasIP(), i.Usable(), i.Gone()}); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestServicesOfTheClusterItselfAreNotImported(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	if of := ServiceOf(slice); of != "" {
		t.Errorf("a slice is of %q", of)
	}
	if of := ServiceOf(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}); of != "" {
		t.Errorf("a Service is of %q", of)
	}
}
