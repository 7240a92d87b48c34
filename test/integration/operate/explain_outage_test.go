package operate_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// The agent of the only exporter stops: importers keep its endpoints, and nothing that is changed
// or deleted of its services is restored. Then the broker stops too.
func TestExplainStoppedExporterAndBroker(t *testing.T) {
	term := freshClusterset(t)
	ns := term.namespace(term.east, term.west)
	for _, name := range []string{"web", "lost", "moved"} {
		term.serve(term.east, ns, name)
		term.healthy(ns, name, "east,west")
	}
	term.eventually(fmt.Sprintf("explain web -n %s --contexts east,west", ns), "all is well", "not managed by Seamark")

	term.east.Stop()
	term.finds(1, "stale-endpoints-kept", ns, "web", "east,west",
		"agent-silent in east", "start seamark-agent", "seamark cluster remove east")
	term.eventually("status --context west", "silent", ns+"/web", "STALE", "every cluster that serves it is silent")
	term.east.Export(t, ns, "unseen")
	term.finds(1, "no-service", ns, "unseen", "east")
	term.east.Serve(t, fleet.NewService(ns, "unseen"), "10.1.0.3")
	term.finds(1, "agent-not-running", ns, "unseen", "east", "no agent of that cluster has reconciled it", "seamark-agent")
	explainWhatIsNotRestored(t, term, ns)

	// West serves it too: now east's endpoints are dropped there.
	term.west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	term.west.Export(t, ns, "web")
	term.finds(0, "stale-endpoints-dropped", ns, "web", "west", "degraded")

	if err := term.fleet.Broker.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	term.west.Serve(t, fleet.NewService(ns, "late"), "10.2.0.1")
	term.west.Export(t, ns, "late")
	term.finds(1, "waiting-for-broker", ns, "late", "west",
		"broker-unreachable", "imported services keep working", "completes by itself")
	term.expect(0, "status --context west", "FAIL the broker could not be asked", "west", "unknown")
	term.expect(1, "get clusters --context west", "error: ")
	failed := term.expect(1, "doctor --context west", "FAIL  broker ", "check that the broker's API server runs")
	if !strings.Contains(failed.Stdout, "SKIP  heartbeat") {
		t.Errorf("what depends on the broker is not checked:\n%s", failed.Stdout)
	}
}

// explainWhatIsNotRestored deletes and changes what the stopped agent of east owns.
func explainWhatIsNotRestored(t *testing.T, term *terminal, ns string) {
	t.Helper()
	term.east.Delete(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: objects.DerivedServiceName("web")}})
	term.finds(1, "derived-service-missing", ns, "web", "east", "FAIL derived-service-missing in east", objects.DerivedServiceName("web"))

	// Records whose claims were changed, of services that west imports for the first time.
	term.claim(ns, "moved", "198.51.100.7")
	term.finds(1, "clusterset-ip-not-used", ns, "moved", "west", "FAIL clusterset-ip-not-used in west", "198.51.100.7", "ClusterSet's ranges")
	lost := term.claim(ns, "lost")
	term.finds(1, "no-clusterset-ip", ns, "lost", "west", "FAIL no-clusterset-ip:", "its exporters have not allocated one", "the agent of east")
	if err := term.fleet.Admin.Delete(context.Background(), lost); err != nil {
		t.Fatal(err)
	}
	term.finds(1, "not-published", ns, "lost", "east", "the broker has no record of it", "seamark-agent")
}

// claim replaces east's record of a service by one that claims these clusterset IPs, when west has
// forgotten those it had.
func (term *terminal) claim(ns, name string, ips ...string) *v1alpha1.ExportRecord {
	term.t.Helper()
	ctx := context.Background()
	record := &v1alpha1.ExportRecord{}
	key := types.NamespacedName{
		Namespace: objects.DefaultNamespace, Name: objects.RecordName(types.NamespacedName{Namespace: ns, Name: name}, "east"),
	}
	if err := term.fleet.Admin.Get(ctx, key, record); err != nil {
		term.t.Fatal(err)
	}
	if err := term.fleet.Admin.Delete(ctx, record); err != nil {
		term.t.Fatal(err)
	}
	term.west.AwaitNoImport(term.t, ns, name)
	replacement := &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name, Labels: record.Labels}, Spec: record.Spec,
	}
	replacement.Spec.ClusterSetIPs = ips
	if err := term.fleet.Admin.Create(ctx, replacement); err != nil {
		term.t.Fatal(err)
	}
	return replacement
}

// The agent of an importer stops: what others change does not arrive there. Then its API server
// stops: it is named, and the rest is explained.
func TestExplainStoppedImporter(t *testing.T) {
	term := freshClusterset(t)
	ns := term.namespace(term.east, term.west)
	for _, name := range []string{"web", "early"} {
		term.serve(term.east, ns, name)
		term.healthy(ns, name, "east,west")
	}

	term.west.Stop()
	ctx := context.Background()
	slice := &discoveryv1.EndpointSlice{}
	if err := term.east.Client.Get(ctx, types.NamespacedName{Namespace: ns, Name: "web-abc"}, slice); err != nil {
		t.Fatal(err)
	}
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.3"}})
	if err := term.east.Client.Update(ctx, slice); err != nil {
		t.Fatal(err)
	}
	term.finds(0, "endpoints-behind", ns, "web", "east,west", "west has 2 endpoints of east, which publishes 3")
	term.serve(term.east, ns, "late")
	term.finds(1, "import-missing", ns, "late", "east,west", `hop "import" in west`, "there is no ServiceImport in cluster west")
	si, err := term.west.Import(ns, "early")
	if err != nil {
		t.Fatal(err)
	}
	si.Status.Conditions = nil
	if err := term.west.Client.Status().Update(ctx, si); err != nil {
		t.Fatal(err)
	}
	term.finds(1, "import-not-ready", ns, "early", "east,west", `hop "import" in west`, "has no conditions yet")

	if err := term.west.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "early", "late"} {
		term.healthy(ns, name, "east,west")
	}
	explainUnreachable(t, term, ns)
}

func explainUnreachable(t *testing.T, term *terminal, ns string) {
	t.Helper()
	if err := term.west.CP.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	s := decode[explanation](t, term.run("explain web -n %s --contexts east,west -o json", ns))
	if i := slices.Index(s.codes(), "cluster-unreachable"); i < 0 || s.Findings[i].Severity != "note" {
		t.Errorf("%+v", s.Findings)
	}
	if len(s.Exporters) != 1 || s.Exporters[0].State != "published" {
		t.Errorf("the rest is not explained: %+v", s)
	}
	harness.Eventually(t, "status shows which cluster cannot be read", func() error {
		return term.run("status --contexts east,west").Lacks(0, "alive, cannot be looked into", "connection refused")
	})
	term.expect(0, "get imports -n "+ns+" --contexts east,west", "warning: cluster west cannot be looked into")
}

// A member with the data plane nftables and a block of two clusterset IPs: a third service gets
// none, and then one of two nodes has no ready proxy.
func TestExplainNFTables(t *testing.T) {
	f, err := startFleet(harness.Fresh(t, 2), fleet.Options{
		Blocks:     map[string][]netip.Prefix{"east": {netip.MustParsePrefix("243.5.0.0/30")}},
		DataPlanes: map[string]v1alpha1.DataPlane{"east": v1alpha1.DataPlaneNFTables},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	term := terminalFor(t, f)
	ns := term.namespace(term.east)
	for _, name := range []string{"one", "two"} {
		term.serve(term.east, ns, name)
		term.healthy(ns, name, "east")
	}
	term.serve(term.east, ns, "three")
	term.finds(1, "no-clusterset-ip-left", ns, "three", "east",
		"243.5.0.0/30 are in use", "unexport services that are not used", "seamark cluster add-block east")
	term.diagnosed("doctor", "clusterset-ip-pool", "east", "fail")
	term.expect(0, "unexport service one -n "+ns)
	term.eventually(fmt.Sprintf("explain three -n %s", ns), "all is well", "243.5.0.")

	term.diagnosed("doctor", "data-plane", "east", "fail") // there is no DaemonSet
	createProxies(t, term.east, 1, 2)
	term.finds(1, "proxy-not-ready", ns, "three", "east", `hop "data plane" in east`, "ready on 1 of 2 nodes", "component=proxy")
	detail, fix := term.diagnosed("doctor", "data-plane", "east", "fail")
	if !strings.Contains(detail, "1 of 2 nodes") || !strings.Contains(fix, "nft_nat") {
		t.Errorf("%s: %s", detail, fix)
	}
}
