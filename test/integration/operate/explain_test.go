package operate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// serve creates a service with two ready endpoints in a member and exports it.
func (term *terminal) serve(m *fleet.Member, ns, name string, change ...func(*corev1.Service)) {
	term.t.Helper()
	m.Serve(term.t, fleet.NewService(ns, name, change...), "10.1.0.1", "10.1.0.2")
	m.Export(term.t, ns, name)
}

// A service that works, hop by hop, with exit code 0: its clusterset IP and which cluster allocated
// it, what each cluster has, and what DNS answers.
func TestExplainAllIsWell(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.serve(term.east, ns, "web")
	line := fmt.Sprintf("explain web -n %s --contexts broker,east,west", ns)
	o := term.eventually(line, "all is well", "EXPORTED BY", "published", "allocated by east", "IMPORTED BY", "imported",
		"DNS RIGHT NOW", "not asked: no pod of seamark-dns is ready",
		"ServiceExport created", "record published", "endpoints imported")
	if strings.Contains(o.Stdout, "FAIL") || strings.Contains(o.Stdout, "\x1b") {
		t.Errorf("in a pipe there are no colours, and nothing failed:\n%s", o.Stdout)
	}
	s := decode[explanation](t, term.run("%s -o json", line))
	if s.State != "ok" || len(s.Findings) != 0 || len(s.Exporters) != 1 || !s.Exporters[0].Published || s.Exporters[0].Heartbeat != "alive" ||
		len(s.Merged.IPs) == 0 || s.Merged.AllocatedBy != "east" || len(s.Importers) != 2 || len(s.Timeline) < 4 {
		t.Errorf("%+v", s)
	}
	address := startDNS(t, term.west)
	answered := term.eventually(fmt.Sprintf("explain web -n %s --contexts west --dns %s", ns, address),
		"all is well", address+": "+s.Importers[1].IPs[0])
	if strings.Contains(answered.Stdout, "not asked") {
		t.Errorf("DNS was asked:\n%s", answered.Stdout)
	}
	term.expect(0, fmt.Sprintf("explain web -n %s --context west", ns), "EXPORTED BY", "east")
}

// healthy waits until the explanation of a service has no finding.
func (term *terminal) healthy(ns, name, contexts string) {
	term.t.Helper()
	term.eventually(fmt.Sprintf("explain %s -n %s --contexts %s", name, ns, contexts), "all is well")
}

// finds waits until the explanation of a service has a finding, and checks its exit code and text.
func (term *terminal) finds(exit int, code, ns, name, contexts string, parts ...string) {
	term.t.Helper()
	term.explained(ns, name, contexts, code)
	// Findings about conditions that are not written yet come and go.
	harness.Eventually(term.t, code+" in the text about "+name, func() error {
		return term.run("explain %s -n %s --contexts %s", name, ns, contexts).Lacks(exit, append(parts, code)...)
	})
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
	term := sharedClusterset(t)
	ns := term.namespace(term.east)
	term.east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	term.finds(1, "not-exported", ns, "web", "east,west",
		"the Service exists in east", "seamark export service web -n "+ns+" --context east", "error: ")
	term.expect(1, "explain nothing -n "+ns, "not-exported", "there is no Service of that name either")
}

func TestExplainNoService(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.east.Export(t, ns, "web")
	term.finds(1, "no-service", ns, "web", "east,west", `broken at hop "export" in east`, "create the Service", "seamark unexport service web")
}

func TestExplainNoReadyEndpoints(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.east.Serve(t, fleet.NewService(ns, "web"))
	term.east.Export(t, ns, "web")
	term.finds(1, "no-ready-endpoints", ns, "web", "east,west", "0 of 0 endpoints in east are ready", "selector matches any pod")
}

func TestExplainExternalName(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east)
	term.east.Create(t, fleet.NewService(ns, "far", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	}))
	term.east.Export(t, ns, "far")
	term.finds(1, "external-name", ns, "far", "east", "example.org", "in each cluster instead")
}

func TestExplainConflicts(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.serve(term.east, ns, "web")
	term.healthy(ns, "web", "east,west")
	term.serve(term.west, ns, "web", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{fleet.Port("http", 8080)} })
	term.finds(0, "port-conflict", ns, "web", "east,west", "degraded",
		"http 80/TCP from east", "west has http 8080/TCP", "give the Service the same ports", "PortConflict")
	term.serve(term.east, ns, "pets")
	term.healthy(ns, "pets", "east,west")
	term.serve(term.west, ns, "pets", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	term.finds(1, "type-conflict", ns, "pets", "east,west", "left out", "make the Service in west ClusterSetIP too")
	term.serve(term.east, ns, "chat")
	term.healthy(ns, "chat", "east,west")
	term.serve(term.west, ns, "chat", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	term.finds(0, "property-conflict", ns, "chat", "east,west", "degraded", "SessionAffinityConflict", "make west agree")
	// Status shows the conflicts of the whole clusterset.
	term.eventually("status", ns+"/web", "CONFLICT", "PortConflict", ns+"/pets", "TypeConflict")
}

func TestExplainNamespaceMissing(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east)
	term.serve(term.east, ns, "web")
	term.finds(1, "namespace-missing", ns, "web", "east,west", `hop "import" in west`, "kubectl --context west create namespace "+ns)
	term.west.Namespace(t, ns)
	term.healthy(ns, "web", "east,west")
}

// A namespace that the broker's admin did not allow.
func TestExplainNamespaceNotAllowed(t *testing.T) {
	term := sharedClusterset(t)
	ns := "kube-" + term.namespace()
	term.east.Namespace(t, ns)
	term.serve(term.east, ns, "web")
	term.finds(1, "namespace-not-allowed", ns, "web", "east", "seamark broker invite east --renew --allow-namespaces "+ns)
}

// A ServiceImport that a user created, while no cluster exports the service.
func TestExplainForeignImport(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.west.Create(t, &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
	})
	term.finds(1, "import-foreign", ns, "web", "east,west", "not-exported", "takes it over")
	term.serve(term.east, ns, "web")
	term.healthy(ns, "web", "east,west")
}
