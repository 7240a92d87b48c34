package apply

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
