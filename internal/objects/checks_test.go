package objects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// wantError checks that err says want, or that there is none if want is empty.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestCheckRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ExportRecord)
		want   string
	}{
		"good":      {func(*v1alpha1.ExportRecord) {}, ""},
		"no labels": {func(r *v1alpha1.ExportRecord) { r.Labels = nil }, "has no service labels"},
		"no namespace label": {
			func(r *v1alpha1.ExportRecord) { delete(r.Labels, v1alpha1.LabelServiceNamespace) }, "has no service labels",
		},
		"spec of another service": {
			func(r *v1alpha1.ExportRecord) { r.Spec.ServiceName = "api" },
			"record web.shop.east is labelled for shop/web but describes shop/api",
		},
		"spec of another namespace": {
			func(r *v1alpha1.ExportRecord) { r.Spec.ServiceNamespace = "bank" },
			"record web.shop.east is labelled for shop/web but describes bank/web",
		},
		"spec of another cluster": {
			func(r *v1alpha1.ExportRecord) { r.Spec.ClusterID = "west" },
			`record web.shop.east is labelled for cluster "east" but its spec says "west"`,
		},
		"label of another cluster": {
			func(r *v1alpha1.ExportRecord) { r.Labels[mcsv1beta1.LabelSourceCluster] = "west" },
			`is labelled for cluster "west" but its spec says "east"`,
		},
		"name of another cluster": {
			func(r *v1alpha1.ExportRecord) { r.Name = "web.shop.west" }, "record web.shop.west should be named web.shop.east",
		},
		"name joined with dashes": {
			func(r *v1alpha1.ExportRecord) { r.Name = "web-shop-east" }, "should be named web.shop.east",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.ExportRecord{
				ObjectMeta: metav1.ObjectMeta{Name: "web.shop.east", Labels: Labels(service("shop", "web"), "east")},
				Spec:       v1alpha1.ExportRecordSpec{ServiceName: "web", ServiceNamespace: "shop", ClusterID: "east"},
			}
			tc.change(r)
			wantError(t, CheckRecord(r), tc.want)
		})
	}
}

func TestCheckSlice(t *testing.T) {
	const mismatch = "which does not match its name"
	for name, tc := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		want   string
	}{
		"good":                    {func(*discoveryv1.EndpointSlice) {}, ""},
		"no labels":               {func(s *discoveryv1.EndpointSlice) { s.Labels = nil }, "has no service labels"},
		"no cluster":              {func(s *discoveryv1.EndpointSlice) { delete(s.Labels, mcsv1beta1.LabelSourceCluster) }, mismatch},
		"label of another":        {func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelSourceCluster] = "west" }, mismatch},
		"label of a shorter id":   {func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelSourceCluster] = "eas" }, mismatch},
		"label of another name":   {func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelServiceName] = "api" }, mismatch},
		"name without a hash":     {func(s *discoveryv1.EndpointSlice) { s.Name = "web.shop.east" }, mismatch},
		"name of another cluster": {func(s *discoveryv1.EndpointSlice) { s.Name = "web.shop.west.0123456789" }, mismatch},
		"longer than any name":    {func(s *discoveryv1.EndpointSlice) { s.Name += strings.Repeat("0", 253) }, mismatch},
	} {
		t.Run(name, func(t *testing.T) {
			web := service("shop", "web")
			s := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: SliceName(web, "east", "web-abcde"), Labels: Labels(web, "east")},
			}
			tc.change(s)
			wantError(t, CheckSlice(s), tc.want)
		})
	}
}

func TestServiceOf(t *testing.T) {
	web := service("shop", "web")
	for _, clusterID := range []string{"", "east"} {
		record := &v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Labels: Labels(web, clusterID)}}
		if got, ok := ServiceOf(record); !ok || got != web {
			t.Errorf("cluster %q: %v, %t", clusterID, got, ok)
		}
		if _, ok := record.Labels[mcsv1beta1.LabelSourceCluster]; ok != (clusterID != "") {
			t.Errorf("cluster %q: labels %v", clusterID, record.Labels)
		}
	}
}

// A broker may be on the API server of a member, so its objects are beside the member's.
func TestOwnership(t *testing.T) {
	web := service("shop", "web")
	slice := func(labels map[string]string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: labels}}
	}
	source := slice(map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"})
	imported := slice(map[string]string{mcsv1beta1.LabelServiceName: "web", discoveryv1.LabelManagedBy: ManagedBy})
	derived := slice(map[string]string{
		mcsv1beta1.LabelServiceName: "web", discoveryv1.LabelServiceName: DerivedServiceName("web"), discoveryv1.LabelManagedBy: ManagedBy,
	})
	onBroker := slice(Labels(web, "east"))
	onBroker.Labels[discoveryv1.LabelManagedBy] = ManagedBy
	for name, tc := range map[string]struct {
		slice              *discoveryv1.EndpointSlice
		isSource, imported bool
	}{
		"of a Service":              {source, true, false},
		"imported":                  {imported, false, true},
		"imported, derived":         {derived, false, true},
		"of the broker":             {onBroker, false, false},
		"of no Service":             {slice(nil), false, false},
		"of another MCS controller": {slice(map[string]string{mcsv1beta1.LabelServiceName: "web"}), false, false},
	} {
		check := func(function string, got types.NamespacedName, ok, want bool) {
			if ok != want || (ok && got != web) {
				t.Errorf("%s of a slice %s: %v, %t", function, name, got, ok)
			}
		}
		got, ok := SourceService(tc.slice)
		check("SourceService", got, ok, tc.isSource)
		got, ok = ImportedService(tc.slice)
		check("ImportedService", got, ok, tc.imported)
	}

	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: DerivedServiceName("web"),
		Labels: map[string]string{LabelManagedBy: ManagedBySeamark, mcsv1beta1.LabelServiceName: "web"},
	}}
	if got, ok := DerivedFrom(svc); !ok || got != web {
		t.Errorf("DerivedFrom: %v, %t", got, ok)
	}
	renamed, unmanaged := svc.DeepCopy(), svc.DeepCopy()
	renamed.Name = "web"
	delete(unmanaged.Labels, LabelManagedBy)
	for _, other := range []*corev1.Service{renamed, unmanaged, {}} {
		if got, ok := DerivedFrom(other); ok {
			t.Errorf("DerivedFrom %s: %v", other.Name, got)
		}
	}

	si := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelManagedBy: ManagedBySeamark}}}
	if !IsManagedImport(si) {
		t.Error("an import of the agent is not managed")
	}
	si.Labels[v1alpha1.LabelServiceNamespace] = "shop"
	if IsManagedImport(si) || IsManagedImport(&mcsv1beta1.ServiceImport{}) {
		t.Error("an aggregate or another controller's import is managed")
	}
}
