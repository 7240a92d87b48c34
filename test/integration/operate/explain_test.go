package operate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// serve makes a service with two ready endpoints in a member and exports it.
func (b *bed) serve(m *fleet.Member, ns, name string, change ...func(*corev1.Service)) {
	b.t.Helper()
	m.Serve(b.t, fleet.NewService(ns, name, change...), "10.1.0.1", "10.1.0.2")
	m.Export(b.t, ns, name)
}

// A service that works is told so, hop by hop, with exit code 0: its address and who allocated it, what each cluster has, and what
// DNS answers right now.
func TestExplainAllIsWell(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east, b.west)
	b.serve(b.east, ns, "web")
	line := fmt.Sprintf("explain web -n %s --contexts hub,east,west", ns)
	o := b.eventually(line, "all is well", "EXPORTED BY", "published", "allocated by east", "IMPORTED BY", "imported", "DNS RIGHT NOW", "not asked: no pod of seamark-dns is ready",
		"ServiceExport created", "record published", "endpoints imported")
	if strings.Contains(o.out, "FAIL") || strings.Contains(o.out, "\x1b") {
		t.Errorf("in a pipe there are no colours, and nothing failed:\n%s", o.out)
	}
	s := decode[story](t, b.run("%s -o json", line))
	if s.State != "ok" || len(s.Findings) != 0 || len(s.Exporters) != 1 || !s.Exporters[0].Published || s.Exporters[0].Heartbeat != "alive" ||
		len(s.Merged.IPs) == 0 || s.Merged.AllocatedBy != "east" || len(s.Importers) != 2 || len(s.Timeline) < 4 {
		t.Errorf("%+v", s)
	}
	address := startDNS(t, b.west)
	answered := b.eventually(fmt.Sprintf("explain web -n %s --contexts west --dns %s", ns, address), "all is well", address+": "+s.Importers[1].IPs[0])
	if strings.Contains(answered.out, "not asked") {
		t.Errorf("DNS was asked:\n%s", answered.out)
	}
	b.expect(0, fmt.Sprintf("explain web -n %s --context west", ns), "EXPORTED BY", "east")
}

// startDNS runs seamark-dns for a member and returns its address.
func startDNS(t *testing.T, m *fleet.Member) string {
	t.Helper()
	text := fmt.Sprintf("clusterset.local:0 {\n bind 127.0.0.1\n clusterset clusterset.local {\n  kubeconfig %s\n }\n}\n", m.CP.Kubeconfig())
	instance, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(text), Filepath: "Corefile", ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := instance.Stop(); err != nil {
			t.Error(err)
		}
		instance.ShutdownCallbacks()
	})
	return instance.Servers()[0].LocalAddr().String()
}

func TestExplainNotExported(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east)
	b.east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	o := b.explained(ns, "web", "east,west", "not-exported")
	if err := o.lacks(1, "the Service exists in east", "seamark export service web -n "+ns+" --context east", "error: "); err != nil {
		t.Error(err)
	}
	b.expect(1, "explain nothing -n "+ns, "not-exported", "nor is there a Service of that name")
}

func TestExplainNoService(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east, b.west)
	b.east.Export(t, ns, "web")
	o := b.explained(ns, "web", "east,west", "no-service")
	if err := o.lacks(1, `broken at hop "export" in east`, "create the Service", "seamark unexport service web"); err != nil {
		t.Error(err)
	}
}

func TestExplainExternalName(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east)
	b.east.Create(t, fleet.NewService(ns, "far", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	}))
	b.east.Export(t, ns, "far")
	if err := b.explained(ns, "far", "east", "external-name").lacks(1, "example.org", "in each cluster instead"); err != nil {
		t.Error(err)
	}
}

func TestExplainConflicts(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east, b.west)
	b.serve(b.east, ns, "web")
	b.eventually(fmt.Sprintf("explain web -n %s --contexts east,west", ns), "all is well")
	b.serve(b.west, ns, "web", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{fleet.Port("http", 8080)} })
	o := b.explained(ns, "web", "east,west", "port-conflict")
	if err := o.lacks(0, "degraded", "http 80/TCP from east", "west has http 8080/TCP", "give the Service the same ports", "PortConflict"); err != nil {
		t.Error(err)
	}
	b.serve(b.east, ns, "pets")
	b.eventually(fmt.Sprintf("explain pets -n %s --contexts east,west", ns), "all is well")
	b.serve(b.west, ns, "pets", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	o = b.explained(ns, "pets", "east,west", "type-conflict")
	if err := o.lacks(1, "left out", "make the Service in west ClusterSetIP too"); err != nil {
		t.Error(err)
	}
	// What one sees of it in the whole clusterset.
	b.eventually("status", ns+"/web", "CONFLICT", "PortConflict", ns+"/pets", "TypeConflict")
}

func TestExplainNamespaceMissing(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east)
	b.serve(b.east, ns, "web")
	o := b.explained(ns, "web", "east,west", "namespace-missing")
	if err := o.lacks(1, `hop "import" in west`, "kubectl --context west create namespace "+ns); err != nil {
		t.Error(err)
	}
	b.west.Namespace(t, ns)
	b.eventually(fmt.Sprintf("explain web -n %s --contexts east,west", ns), "all is well")
}

func TestExplainDerivedServiceTaken(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east, b.west)
	mine := fleet.NewService(ns, objects.DerivedServiceName("web"))
	b.west.Create(t, mine)
	b.serve(b.east, ns, "web")
	o := b.explained(ns, "web", "east,west", "derived-service-foreign")
	if err := o.lacks(1, `hop "data plane" in west`, "delete service "+mine.Name); err != nil {
		t.Error(err)
	}
}

// A block of two addresses, and a third service.
func TestExplainNoAddressLeft(t *testing.T) {
	f, err := startFleet(harness.Fresh(t, 2), fleet.Options{Blocks: map[string][]netip.Prefix{"east": {netip.MustParsePrefix("243.5.0.0/30")}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	b := bedOn(t, f)
	ns := b.namespace(b.east)
	for _, name := range []string{"one", "two"} {
		b.serve(b.east, ns, name)
		b.eventually(fmt.Sprintf("explain %s -n %s", name, ns), "all is well")
	}
	b.serve(b.east, ns, "three")
	if err := b.explained(ns, "three", "east", "no-clusterset-ip-left").lacks(1, "243.5.0.0/30 are in use", "unexport services that nobody uses", "--clusterset-ip-cidr"); err != nil {
		t.Error(err)
	}
	b.consult("doctor", "clusterset-ip-pool", "east", "fail")
	b.expect(0, "unexport service one -n "+ns)
	b.eventually(fmt.Sprintf("explain three -n %s", ns), "all is well", "243.5.0.")
}

// The agent of the only exporter dies: its peers keep its endpoints, and say so; then its peer's agent dies too.
func TestExplainDeadAgentAndDeadBroker(t *testing.T) {
	b := freshBed(t)
	ns := b.namespace(b.east, b.west)
	b.serve(b.east, ns, "web")
	line := fmt.Sprintf("explain web -n %s --contexts east,west", ns)
	b.eventually(line, "all is well", "left to something else")

	b.east.Stop()
	if err := b.explained(ns, "web", "east,west", "stale-endpoints-kept").lacks(1, "agent-silent in east", "start seamark-agent", "seamark cluster remove east"); err != nil {
		t.Error(err)
	}
	b.eventually("status --context west", "silent", ns+"/web", "STALE", "every cluster that serves it is silent")
	b.east.Export(t, ns, "unseen")
	if err := b.explained(ns, "unseen", "east", "no-service").lacks(1); err != nil {
		t.Error(err)
	}
	b.east.Serve(t, fleet.NewService(ns, "unseen"), "10.1.0.3")
	if err := b.explained(ns, "unseen", "east", "agent-not-running").lacks(1, "no agent of that cluster has looked at it", "seamark-agent"); err != nil {
		t.Error(err)
	}

	// West serves it too: now east's endpoints are dropped there.
	b.west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	b.west.Export(t, ns, "web")
	if err := b.explained(ns, "web", "west", "stale-endpoints-dropped").lacks(0, "degraded"); err != nil {
		t.Error(err)
	}

	if err := b.fleet.Broker.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	b.west.Serve(t, fleet.NewService(ns, "late"), "10.2.0.1")
	b.west.Export(t, ns, "late")
	o := b.explained(ns, "late", "west", "waiting-for-broker")
	if err := o.lacks(1, "broker-unreachable", "what is imported keeps working", "completes by itself"); err != nil {
		t.Error(err)
	}
	b.expect(0, "status --context west", "FAIL the broker could not be asked", "west", "unknown")
	b.expect(1, "get clusters --context west", "error: ")
	failed := b.expect(1, "doctor --context west", "FAIL  broker ", "is the broker's API server up")
	if !strings.Contains(failed.out, "SKIP  heartbeat") {
		t.Errorf("what depends on the broker is not checked:\n%s", failed.out)
	}
}

// A namespace that the broker's admin did not allow.
func TestExplainNamespaceNotAllowed(t *testing.T) {
	b := newBed(t)
	ns := "kube-" + b.namespace()
	b.east.Namespace(t, ns)
	b.serve(b.east, ns, "web")
	if err := b.explained(ns, "web", "east", "namespace-not-allowed").lacks(1, "seamark broker invite east --renew --allow-namespaces "+ns); err != nil {
		t.Error(err)
	}
}

// DNS that does not know the name, and DNS that does not answer.
func TestExplainDNS(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east, b.west)
	b.serve(b.east, ns, "web")
	b.eventually(fmt.Sprintf("explain web -n %s --contexts east,west", ns), "all is well")
	// A server of another cluster's names, as a DNS that does not forward is.
	address := startDNS(t, &fleet.Member{CP: b.fleet.Broker})
	o := b.run("explain web -n %s --context west --dns %s", ns, address)
	if err := o.lacks(1, "dns-no-answer in west", "NXDOMAIN", "seamark doctor"); err != nil {
		t.Error(err)
	}
	o = b.run("explain web -n %s --context west --dns 127.0.0.1:1", ns)
	if err := o.lacks(1, "dns-silent in west", "127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	b.expect(2, "explain web --dns west=", "--dns west=", "ADDRESS")
}

// A context that cannot be reached is told, and the rest explained.
func TestExplainWithAnUnreachableCluster(t *testing.T) {
	b := freshBed(t)
	ns := b.namespace(b.east, b.west)
	b.serve(b.east, ns, "web")
	b.eventually(fmt.Sprintf("explain web -n %s --contexts east,west", ns), "all is well")
	if err := b.west.CP.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	s := decode[story](t, b.run("explain web -n %s --contexts east,west -o json", ns))
	if i := slices.Index(s.codes(), "cluster-unreachable"); i < 0 || s.Findings[i].Severity != "note" {
		t.Errorf("%+v", s.Findings)
	}
	if len(s.Exporters) != 1 || s.Exporters[0].State != "published" {
		t.Errorf("the rest is not explained: %+v", s)
	}
	harness.Eventually(t, "status shows who cannot be looked into", func() error {
		return b.run("status --contexts east,west").lacks(0, "alive, cannot be looked into", "connection refused")
	})
	b.expect(0, "get imports -n "+ns+" --contexts east,west", "warning: cluster west cannot be looked into")
}

// A ServiceImport that somebody else made, with no export behind it.
func TestExplainForeignImport(t *testing.T) {
	b := newBed(t)
	ns := b.namespace(b.east, b.west)
	b.west.Create(t, &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
	})
	if err := b.explained(ns, "web", "east,west", "import-foreign").lacks(1, "not-exported", "takes it over"); err != nil {
		t.Error(err)
	}
	b.serve(b.east, ns, "web")
	b.eventually(fmt.Sprintf("explain web -n %s --contexts east,west", ns), "all is well")
}
