package agent

import (
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/subscription"
	"github.com/seamark-dev/seamark/internal/objects"
)

func endpointSlice(labels map[string]string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationRegion: "eu"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{Name: "web-pod"}}},
	}
}

func sliceTransform(t *testing.T, options cache.Options) func(any) (any, error) {
	t.Helper()
	for kind, byObject := range options.ByObject {
		if _, ok := kind.(*discoveryv1.EndpointSlice); ok {
			return byObject.Transform
		}
	}
	t.Fatal("EndpointSlices are cached without a transform")
	return nil
}

// Slices that are only compared are cached as a digest. Caches apply a transform twice when they
// list by a watch, so the second time must not change the result.
func TestCachedSlices(t *testing.T) {
	local, broker := sliceTransform(t, localCache()), sliceTransform(t, brokerCache(nil, "seamark-broker", subscription.Every(), foreignOf("north")))
	for name, test := range map[string]struct {
		transform func(any) (any, error)
		labels    map[string]string
		digest    bool
	}{
		"of a Service":                 {local, map[string]string{discoveryv1.LabelServiceName: "web"}, false},
		"imported":                     {local, map[string]string{discoveryv1.LabelManagedBy: objects.ManagedBy}, true},
		"published by this cluster":    {broker, map[string]string{mcsv1beta1.LabelSourceCluster: "north"}, true},
		"published by another cluster": {broker, map[string]string{mcsv1beta1.LabelSourceCluster: "south"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			desired, cached := endpointSlice(test.labels), endpointSlice(test.labels)
			for range 2 {
				if _, err := test.transform(cached); err != nil {
					t.Fatal(err)
				}
			}
			if apply.HasDigest(cached) != test.digest || (len(cached.Endpoints) == 0) != test.digest {
				t.Errorf("cached as %+v", cached)
			}
			if cached.ManagedFields != nil || cached.Annotations[v1alpha1.AnnotationRegion] != "eu" {
				t.Errorf("metadata: %+v", cached.ObjectMeta)
			}
			if !test.digest {
				return
			}
			var changes apply.Changes
			apply.DiffSlices(&changes, []*discoveryv1.EndpointSlice{cached}, []*discoveryv1.EndpointSlice{desired})
			if !changes.Empty() {
				t.Errorf("an unchanged slice would be written: %+v", changes)
			}
		})
	}
}

// Equal strings of different objects share memory.
func TestInternStrings(t *testing.T) {
	value := func() string { return string([]byte("kubernetes-endpointslice-controller")) }
	a, b := endpointSlice(map[string]string{"managed-by": value()}), endpointSlice(map[string]string{"managed-by": value()})
	for _, s := range []*discoveryv1.EndpointSlice{a, b} {
		internStrings(s)
	}
	if unsafe.StringData(a.Labels["managed-by"]) != unsafe.StringData(b.Labels["managed-by"]) {
		t.Error("equal label values do not share memory")
	}
}
