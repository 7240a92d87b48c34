package operate_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// exports returns the names of the exports of a namespace.
func exports(t *testing.T, m *fleet.Member, ns string) []string {
	t.Helper()
	var list mcsv1beta1.ServiceExportList
	if err := m.Client.List(context.Background(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

// A whole namespace, and by label: previewed, confirmed, and with what cannot be exported.
func TestBulkExport(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east)
	backend := func(s *corev1.Service) { s.Labels = map[string]string{"tier": "backend"} }
	term.east.Create(t, fleet.NewService(ns, "api", backend), fleet.NewService(ns, "cache", backend), fleet.NewService(ns, "web"),
		fleet.NewService(ns, "far", func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
		}))
	preview := term.expect(0, "export namespace "+ns+" --dry-run",
		"api", "would export", "far", "skipped: an ExternalName Service cannot be exported", "3 would export, 1 skipped")
	if got := exports(t, term.east, ns); len(got) > 0 {
		t.Errorf("a preview exported %v\n%s", got, preview.Stdout)
	}
	term.expect(2, "export namespace "+ns, "not a terminal", "--yes")
	term.expect(0, "export service --selector tier=backend --yes -n "+ns, "api", "cache", "2 exported", "Next: seamark status")
	if got := exports(t, term.east, ns); len(got) != 2 || got[0] != "api" || got[1] != "cache" {
		t.Errorf("%v", got)
	}
	type listing struct {
		Services []struct{ Name, Type, Action, Why string }
	}
	derived := types.NamespacedName{Namespace: ns, Name: objects.DerivedServiceName("api")}
	harness.Eventually(t, "a Service derived from an exported one, which is not offered", func() error {
		return term.east.Client.Get(t.Context(), derived, &corev1.Service{})
	})
	all := decode[listing](t, term.run("export namespace %s --yes -o json", ns)).Services
	want := map[string]string{"api": "already exported", "cache": "already exported", "far": "skipped", "web": "exported"}
	for _, s := range all {
		if want[s.Name] != s.Action {
			t.Errorf("%+v", s)
		}
	}
	if len(all) != len(want) || len(exports(t, term.east, ns)) != 3 {
		t.Errorf("%+v", all)
	}
	term.expect(0, "export namespace "+ns, "already exported") // nothing to do, so nothing to confirm
	term.expect(0, "export namespace default --dry-run", "kubernetes", "it is this cluster's own API server")
	term.expect(0, "export service --selector tier=none -n "+ns, "There is no such Service")
	term.expect(1, "export namespace nowhere --yes", "there is no namespace nowhere")
	term.expect(2, "export service web --selector a=b -n "+ns, "not both")
	term.expect(2, "export service web --yes -n "+ns, "go with --selector")
	term.expect(2, "export service --selector a=b --wait -n "+ns, "--wait")
	term.expect(2, "export namespace "+ns+" --selector =", "--selector")
	// Exporting one by name needs no confirmation.
	term.expect(0, "export service web -n "+ns, "web")
}
