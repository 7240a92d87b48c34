package operate_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
	"github.com/seamark-dev/seamark/test/nodeproxy"
)

// The commands ask a real seamark-proxy, through the API server, what it has programmed into a real
// kernel.
func TestExplainProxy(t *testing.T) {
	// Agents and commands connect without the relay, so CutOff affects the proxy alone.
	f, err := startFleet(harness.Fresh(t, 2), fleet.Options{
		Direct: true, DataPlanes: map[string]v1alpha1.DataPlane{"east": v1alpha1.DataPlaneNFTables},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	term := terminalFor(t, f)
	term.changeKubeconfig(func(config *clientcmdapi.Config) { addContext(config, "east", term.east.CP.DirectConfig()) })
	node := startProxy(t, term.east)

	ns := term.namespace(term.east)
	term.serve(term.east, ns, "web")
	term.eventually(fmt.Sprintf("explain web -n %s", ns), "all is well", ":80/TCP → 2 endpoints")
	if detail, _ := term.diagnosed("doctor", "data-plane", "east", "pass"); !strings.Contains(detail, "1 of 1 proxies asked") {
		t.Errorf("data-plane: %s", detail)
	}
	explainProxyDamaged(t, term, node, ns)
	explainProxyBehind(t, term, node, ns)
	explainProxyCutOff(t, term, ns)
	explainProxyRefused(t, term, ns)
}

// Another program changes the table. The commands report what packets meet, and the proxy repairs
// it.
func explainProxyDamaged(t *testing.T, term *terminal, node *netbed.Node, ns string) {
	t.Helper()
	flush := func() error {
		return node.Do(func() error {
			out, err := exec.Command("nft", "flush", "chain", "inet", "seamark", "pick4-2").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
	}
	const difference = "chain pick4-2 has other rules"
	for command, parts := range map[string][]string{
		"doctor --contexts east": {"data-plane", "another program changed table inet seamark on " + nodeproxy.NodeName + ": " + difference},
		fmt.Sprintf("explain web -n %s --contexts east", ns): {
			"proxy-damaged", `hop "data plane" in east`, "node " + nodeproxy.NodeName + ": " + difference, "nft monitor",
		},
	} {
		// The proxy may find and repair the damage between the two steps.
		harness.Eventually(t, command+" reports the damage", func() error {
			if err := flush(); err != nil {
				return err
			}
			return term.run("%s", command).Lacks(1, parts...)
		})
		term.healthy(ns, "web", "east")
	}
}

// The kernel refuses the proxy's transactions: another process owns the table.
func explainProxyBehind(t *testing.T, term *terminal, node *netbed.Node, ns string) {
	t.Helper()
	owner := exec.Command("nft", "-i")
	commands, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	exited, err := node.Start(owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(commands, "delete table inet seamark; add table inet seamark { flags owner; }"); err != nil {
		t.Fatal(err)
	}
	term.finds(1, "proxy-behind", ns, "web", "east", `hop "data plane" in east`,
		"seamark-proxy has not programmed it on "+nodeproxy.NodeName, "logs -l app.kubernetes.io/component=proxy")
	if err := commands.Close(); err != nil { // nft ends, and the kernel deletes its table
		t.Fatal(err)
	}
	<-exited
	term.healthy(ns, "web", "east")
}

// The proxy cannot reach its API server: it lacks the services that are exported meanwhile, keeps
// the others, and cannot check who asks.
func explainProxyCutOff(t *testing.T, term *terminal, ns string) {
	t.Helper()
	term.east.CP.CutOff()
	term.serve(term.east, ns, "late")
	term.finds(0, "proxy-cut-off", ns, "late", "east", `hop "data plane" in east`,
		"seamark-proxy cannot reach the API server from "+nodeproxy.NodeName, "logs -l app.kubernetes.io/component=proxy")
	term.diagnosed("doctor --contexts east", "data-plane", "east", "warn")
	term.east.CP.Reconnect()
	term.healthy(ns, "late", "east")
}

// A user wrote the slice of a Service without a selector, and one of its ports is 0. API servers
// accept that.
func explainProxyRefused(t *testing.T, term *terminal, ns string) {
	t.Helper()
	svc := fleet.NewService(ns, "manual", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{fleet.Port("http", 80), fleet.Port("admin", 81)}
	})
	slice := fleet.NewSlice(svc, "abc", "10.1.0.1", "10.1.0.2")
	const admin = 1
	slice.Ports[admin].Port = ptr.To[int32](0)
	term.east.Create(t, svc, slice)
	term.east.Export(t, ns, svc.Name)
	term.finds(0, "proxy-refused", ns, svc.Name, "east", "degraded", `hop "data plane" in east`,
		"node "+nodeproxy.NodeName+": endpoint port 0", ":80/TCP → 2 endpoints", ":81/TCP → 0 endpoints",
		"correct the ports or endpoints of the Service where it is exported")
	fleet.Update(t, term.east, ns, slice.Name, slice, func(s *discoveryv1.EndpointSlice) {
		s.Ports[admin].Port = ptr.To[int32](8081)
	})
	term.healthy(ns, svc.Name, "east")
}

// startProxy runs seamark-proxy for a member on a node, and creates its DaemonSet and Pod: there
// are no kubelets here.
func startProxy(t *testing.T, m *fleet.Member) *netbed.Node {
	t.Helper()
	node, err := netbed.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	// An API server does not connect to pods on loopback addresses.
	address, err := node.LinkToHost()
	if err != nil {
		t.Fatal(err)
	}
	nodeproxy.Install(t, node, m.CP).StartReady()
	allowReading(t, m)
	proxies := createProxies(t, m, 1, 1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: proxies.Namespace, Name: proxies.Name + "-" + nodeproxy.NodeName, Labels: proxies.Spec.Template.Labels,
		},
		Spec: proxies.Spec.Template.Spec,
	}
	pod.Spec.NodeName = nodeproxy.NodeName
	m.Create(t, pod)
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, address.String()
	if err := m.Client.Status().Update(context.Background(), pod); err != nil {
		t.Fatal(err)
	}
	return node
}

// allowReading creates what the chart has for the readers of proxies.
func allowReading(t *testing.T, m *fleet.Member) {
	t.Helper()
	name := metav1.ObjectMeta{Name: programmed.ReaderAccount}
	m.Create(t,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: programmed.ReaderAccount}},
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{programmed.Path}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: programmed.ReaderAccount},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: objects.AgentNamespace, Name: programmed.ReaderAccount}},
		})
}

// createProxies creates the DaemonSet of seamark-proxy and sets on how many nodes it is ready.
func createProxies(t *testing.T, m *fleet.Member, ready, want int32) *appsv1.DaemonSet {
	t.Helper()
	like := deployment("seamark-proxy", 0).Spec
	proxies := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "seamark-proxy"},
		Spec:       appsv1.DaemonSetSpec{Selector: like.Selector, Template: like.Template},
	}
	m.Create(t, proxies)
	proxies.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: want, CurrentNumberScheduled: want, NumberReady: ready}
	if err := m.Client.Status().Update(context.Background(), proxies); err != nil {
		t.Fatal(err)
	}
	return proxies
}
