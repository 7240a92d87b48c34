package objects

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func TestAdmitted(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0).UTC()) }
	cluster := func(namespaces ...string) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(100)}, Spec: v1alpha1.ClusterSpec{AllowedNamespaces: namespaces},
		}
	}
	for name, test := range map[string]struct {
		cluster   *v1alpha1.Cluster
		namespace string
		exported  int64
		want      int64 // 0: not admitted
	}{
		"exported after its admission":         {cluster(), "shop", 150, 150},
		"exported with its admission":          {cluster(), "shop", 100, 100},
		"exported before its admission":        {cluster(), "shop", 50, 100},
		"claims to be from 1970":               {cluster(), "shop", 0, 100},
		"the namespace is named":               {cluster("shop", "bank"), "bank", 150, 150},
		"the namespace is no longer allowed":   {cluster("bank"), "shop", 150, 0},
		"a reserved namespace":                 {cluster(), "kube-system", 150, 0},
		"a reserved namespace that is allowed": {cluster("kube-system"), "kube-system", 150, 150},
		"no member":                            {nil, "shop", 150, 0},
	} {
		clusterOf := func(id string) *v1alpha1.Cluster {
			if id != "east" {
				t.Errorf("%s: asked about cluster %q", name, id)
			}
			return test.cluster
		}
		service := types.NamespacedName{Namespace: test.namespace, Name: "web"}
		record := &v1alpha1.ExportRecord{Spec: v1alpha1.ExportRecordSpec{
			ServiceName: "web", ServiceNamespace: test.namespace, ClusterID: "east", ExportedAt: at(test.exported),
		}}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: Labels(service, "east")}}
		records := AdmittedRecords([]*v1alpha1.ExportRecord{record}, clusterOf)
		if got := len(AdmittedSlices([]*discoveryv1.EndpointSlice{slice}, clusterOf)); got != len(records) {
			t.Errorf("%s: %d records and %d slices are admitted", name, len(records), got)
		}
		var got int64
		if len(records) == 1 {
			got = records[0].Spec.ExportedAt.Unix()
		}
		if got != test.want {
			t.Errorf("%s: exported at %d, want %d", name, got, test.want)
		}
		if record.Spec.ExportedAt != at(test.exported) {
			t.Errorf("%s: the cached record was changed", name)
		}
	}
}
