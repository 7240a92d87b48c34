package imports

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

type pairs = map[string]string

func exported(labels, annotations pairs) func(*v1alpha1.ExportRecordSpec) {
	return func(r *v1alpha1.ExportRecordSpec) { r.ExportedLabels, r.ExportedAnnotations = labels, annotations }
}

// The agent owns its own keys and the exported ones. Keys of other controllers stay, on the import
// and on the derived Service.
func TestLabelsAndAnnotationsOfOthersStay(t *testing.T) {
	in := input([]*v1alpha1.ExportRecord{record("a", 1, exported(pairs{"team": "shop", "tier": "web"}, pairs{
		"note": "hello", "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8",
		"external-dns.alpha.kubernetes.io/hostname": "bank.example",
	}))})
	in.DataPlane = objects.DataPlaneOf(v1alpha1.DataPlaneService)
	plan := Decide(in)
	check := func(what string, obj metav1.Object, labels, annotations pairs) {
		t.Helper()
		if diff := cmp.Diff(labels, obj.GetLabels()); diff != "" {
			t.Errorf("labels of %s: %s", what, diff)
		}
		if diff := cmp.Diff(annotations, obj.GetAnnotations()); diff != "" {
			t.Errorf("annotations of %s: %s", what, diff)
		}
	}
	const managed, ofService = "app.kubernetes.io/managed-by", "multicluster.kubernetes.io/service-name"
	check("the new import", plan.Import, pairs{"team": "shop", "tier": "web", managed: "seamark"}, pairs{
		"note": "hello", "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8",
		"external-dns.alpha.kubernetes.io/hostname": "bank.example",
		"seamark.dev/exported-keys": "team,tier;external-dns.alpha.kubernetes.io/hostname,note," +
			"service.beta.kubernetes.io/load-balancer-source-ranges",
		"seamark.dev/clusterset-ips": "243.0.0.9,fd00:243::9", "seamark.dev/clusterset-ip-allocated-by": "a",
	})
	check("the new Service", plan.Derived.Want, pairs{"team": "shop", "tier": "web", managed: "seamark", ofService: "web"},
		pairs{"note": "hello", "seamark.dev/exported-keys": "team,tier;note"})

	// Others write, and the exporter takes back what it exported.
	in.Existing, in.Derived = plan.Import, plan.Derived.Want
	for _, obj := range []metav1.Object{in.Existing, in.Derived} {
		obj.GetLabels()["argo"], obj.GetAnnotations()["argo"] = "1", "1"
		obj.GetLabels()["team"], obj.GetAnnotations()["seamark.dev/mode"] = "edited", "classic"
	}
	in.Records = []*v1alpha1.ExportRecord{record("a", 1, exported(pairs{"team": "shop"}, nil))}
	plan = Decide(in)
	check("the import", plan.Import, pairs{"argo": "1", "team": "shop", managed: "seamark"},
		pairs{"argo": "1", "seamark.dev/exported-keys": "team;", "seamark.dev/clusterset-ips": "243.0.0.9,fd00:243::9",
			"seamark.dev/clusterset-ip-allocated-by": "a"})
	check("the Service", plan.Derived.Want, pairs{"argo": "1", "team": "shop", managed: "seamark", ofService: "web"},
		pairs{"argo": "1", "seamark.dev/exported-keys": "team;"})
	if sameService(in.Derived, plan.Derived.Want) {
		t.Error("a changed annotation is not written to the derived Service")
	}
	in.Existing, in.Derived = plan.Import, plan.Derived.Want
	if again := Decide(in); !sameImport(plan.Import, again.Import) || !sameService(plan.Derived.Want, again.Derived.Want) {
		t.Error("a second reconcile writes again")
	}
}
