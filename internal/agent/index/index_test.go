package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// indexFuncs collects the functions that AddLocal and AddBroker register, by kind and index.
type indexFuncs map[string]client.IndexerFunc

func (f indexFuncs) IndexField(_ context.Context, obj client.Object, field string, index client.IndexerFunc) error {
	f[fmt.Sprintf("%T %s", obj, field)] = index
	return nil
}

// A slice of a Service and a slice that was imported are found separately, and slices of a broker
// on the same API server are neither.
func TestIndexes(t *testing.T) {
	const slice = "*v1.EndpointSlice "
	local, broker := indexFuncs{}, indexFuncs{}
	if err := errors.Join(AddLocal(t.Context(), local), AddBroker(t.Context(), broker)); err != nil {
		t.Fatal(err)
	}
	labelled := func(labels ...string) metav1.ObjectMeta {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: "x", Labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			meta.Labels[labels[i]] = labels[i+1]
		}
		return meta
	}
	source := &discoveryv1.EndpointSlice{ObjectMeta: labelled(discoveryv1.LabelServiceName, "web")}
	imported := &discoveryv1.EndpointSlice{ObjectMeta: labelled(
		discoveryv1.LabelServiceName, "derived", mcsv1beta1.LabelServiceName, "web", discoveryv1.LabelManagedBy, objects.ManagedBy)}
	onBroker := &discoveryv1.EndpointSlice{ObjectMeta: labelled(
		v1alpha1.LabelServiceNamespace, "shop", mcsv1beta1.LabelServiceName, "web", discoveryv1.LabelManagedBy, objects.ManagedBy)}
	record := &v1alpha1.ExportRecord{ObjectMeta: labelled(v1alpha1.LabelServiceNamespace, "shop", mcsv1beta1.LabelServiceName, "web")}
	claiming := &v1alpha1.ExportRecord{Spec: v1alpha1.ExportRecordSpec{ClusterSetIPs: []string{"243.0.0.1", "fd00::1"}}}
	for _, test := range []struct {
		index client.IndexerFunc
		obj   client.Object
		want  []string
	}{
		{local[slice+bySourceService], source, []string{"web"}},
		{local[slice+bySourceService], imported, nil},
		{local[slice+bySourceService], onBroker, nil},
		{local[slice+byImportedService], source, nil},
		{local[slice+byImportedService], imported, []string{"web"}},
		{local[slice+byImportedService], onBroker, nil},
		{broker[slice+byBrokerService], onBroker, []string{"shop/web"}},
		{broker[slice+byBrokerService], source, nil},
		{broker["*v1alpha1.ExportRecord "+byBrokerService], record, []string{"shop/web"}},
		{broker["*v1alpha1.ExportRecord "+byNamespace], record, []string{"shop"}},
		{broker["*v1alpha1.ExportRecord "+byClusterSetIP], claiming, []string{"243.0.0.1", "fd00::1"}},
	} {
		if got := test.index(test.obj); !slices.Equal(got, test.want) {
			t.Errorf("%T with labels %v is indexed as %v, want %v", test.obj, test.obj.GetLabels(), got, test.want)
		}
	}
}

// A record or slice whose name belongs to another cluster is left out.
func TestObjectsOfOtherNamesAreLeftOut(t *testing.T) {
	service := types.NamespacedName{Namespace: "shop", Name: "web"}
	named := func(name string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelServiceNamespace: "shop", mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: "east",
		}}}
	}
	items := []discoveryv1.EndpointSlice{
		named(objects.SliceName(service, "east", "a")), named(objects.SliceName(service, "west", "a")),
		named(objects.SliceName(service, "east", "b")),
	}
	got := valid(items, objects.CheckSlice)
	if len(got) != 2 || got[0] != &items[0] || got[1] != &items[2] {
		t.Errorf("%d slices are left: %v", len(got), got)
	}
}
