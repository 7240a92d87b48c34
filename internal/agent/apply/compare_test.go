package apply

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// An API server does not store the difference between no labels and an empty map of labels, so it
// must not lead to a write.
func TestSameMetadata(t *testing.T) {
	object := func(labels, annotations map[string]string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
	}
	one, other := map[string]string{"a": "1"}, map[string]string{"a": "2"}
	for _, test := range []struct {
		name string
		a, b *discoveryv1.EndpointSlice
		want bool
	}{
		{"none and empty", object(nil, nil), object(map[string]string{}, map[string]string{}), true},
		{"equal", object(one, other), object(map[string]string{"a": "1"}, map[string]string{"a": "2"}), true},
		{"another label", object(one, nil), object(other, nil), false},
		{"one more label", object(one, nil), object(map[string]string{"a": "1", "b": "1"}, nil), false},
		{"another annotation", object(nil, one), object(nil, other), false},
	} {
		if got := SameMetadata(test.a, test.b); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSameOwners(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "web", UID: "1", Controller: ptr.To(true)}
	if !SameOwners(nil, []metav1.OwnerReference{}) {
		t.Error("no owners and an empty list differ")
	}
	equal := owner
	equal.Controller = ptr.To(true)
	if !SameOwners([]metav1.OwnerReference{owner}, []metav1.OwnerReference{equal}) {
		t.Error("equal owners differ")
	}
	for name, change := range map[string]func(*metav1.OwnerReference){
		"apiVersion": func(o *metav1.OwnerReference) { o.APIVersion = "v2" },
		"kind":       func(o *metav1.OwnerReference) { o.Kind = "Pod" },
		"name":       func(o *metav1.OwnerReference) { o.Name = "db" },
		"uid":        func(o *metav1.OwnerReference) { o.UID = "2" },
		"controller": func(o *metav1.OwnerReference) { o.Controller = nil },
		"block":      func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(false) },
	} {
		other := owner
		change(&other)
		if SameOwners([]metav1.OwnerReference{owner}, []metav1.OwnerReference{other}) {
			t.Errorf("owners with another %s are the same", name)
		}
	}
	if SameOwners([]metav1.OwnerReference{owner}, nil) {
		t.Error("one owner and none are the same")
	}
}

func TestSameImportSpec(t *testing.T) {
	spec := func() *mcsv1beta1.ServiceImportSpec {
		return &mcsv1beta1.ServiceImportSpec{
			Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, IPs: []string{"243.0.0.1"},
			SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10)}},
		}
	}
	if !SameImportSpec(spec(), spec()) || !SameImportSpec(&mcsv1beta1.ServiceImportSpec{}, &mcsv1beta1.ServiceImportSpec{IPs: []string{}}) {
		t.Error("equal specs differ")
	}
	fields := map[string]func(*mcsv1beta1.ServiceImportSpec){
		"Ports":           func(s *mcsv1beta1.ServiceImportSpec) { s.Ports = append(s.Ports, s.Ports[0]) },
		"IPs":             func(s *mcsv1beta1.ServiceImportSpec) { s.IPs = []string{"243.0.0.2"} },
		"Type":            func(s *mcsv1beta1.ServiceImportSpec) { s.Type = mcsv1beta1.Headless },
		"SessionAffinity": func(s *mcsv1beta1.ServiceImportSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP },
		"SessionAffinityConfig": func(s *mcsv1beta1.ServiceImportSpec) {
			s.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr.To[int32](20)
		},
		"IPFamilies": func(s *mcsv1beta1.ServiceImportSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
		"InternalTrafficPolicy": func(s *mcsv1beta1.ServiceImportSpec) {
			s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		},
		"TrafficDistribution": func(s *mcsv1beta1.ServiceImportSpec) { s.TrafficDistribution = ptr.To("PreferClose") },
	}
	ofPorts := map[string]func(*mcsv1beta1.ServicePort){
		"Name":        func(p *mcsv1beta1.ServicePort) { p.Name = "web" },
		"Protocol":    func(p *mcsv1beta1.ServicePort) { p.Protocol = corev1.ProtocolUDP },
		"AppProtocol": func(p *mcsv1beta1.ServicePort) { p.AppProtocol = ptr.To("http") },
		"Port":        func(p *mcsv1beta1.ServicePort) { p.Port = 81 },
	}
	for field := range reflect.TypeFor[mcsv1beta1.ServiceImportSpec]().Fields() {
		changed := spec()
		if change := fields[field.Name]; change == nil {
			t.Errorf("field %s is not compared", field.Name)
		} else if change(changed); SameImportSpec(spec(), changed) {
			t.Errorf("specs with another %s are the same", field.Name)
		}
	}
	for field := range reflect.TypeFor[mcsv1beta1.ServicePort]().Fields() {
		changed := spec()
		if change := ofPorts[field.Name]; change == nil {
			t.Errorf("field %s of ports is not compared", field.Name)
		} else if change(&changed.Ports[0]); SameImportSpec(spec(), changed) {
			t.Errorf("ports with another %s are the same", field.Name)
		}
	}
}
