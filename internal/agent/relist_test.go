package agent

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// A Cluster is read again if it is another object or another version than the informer has.
func TestDivide(t *testing.T) {
	meta := func(name, uid, version string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "seamark-broker", Name: name, UID: types.UID(uid), ResourceVersion: version}
	}
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	before := []metav1.ObjectMeta{meta("same", "1", "10"), meta("changed", "2", "10"), meta("replaced", "3", "10"), meta("gone", "4", "10")}
	for _, held := range before {
		if err := store.Add(&v1alpha1.Cluster{ObjectMeta: held}); err != nil {
			t.Fatal(err)
		}
	}
	var versions []metav1.PartialObjectMetadata
	after := []metav1.ObjectMeta{meta("same", "1", "10"), meta("changed", "2", "11"), meta("replaced", "5", "10"), meta("new", "6", "12")}
	for _, now := range after {
		versions = append(versions, metav1.PartialObjectMetadata{ObjectMeta: now})
	}
	same, changed := (&clusterLister{held: store.GetByKey}).divide(versions)
	if len(same) != 1 || same[0].Name != "same" || !slices.Equal(changed, []string{"changed", "replaced", "new"}) {
		t.Errorf("the same are %v, changed are %v", same, changed)
	}
}

func TestTooMany(t *testing.T) {
	for _, test := range []struct {
		changed, all int
		want         bool
	}{{0, 0, false}, {1, 2, false}, {2, 2, true}, {2, 64, false}, {3, 127, true}, {16, 1000, false}, {17, 1000, true}} {
		if got := tooMany(test.changed, test.all); got != test.want {
			t.Errorf("%d of %d: %t", test.changed, test.all, got)
		}
	}
}
