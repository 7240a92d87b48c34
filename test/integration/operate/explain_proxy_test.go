package operate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
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
	startProxy(t, term.east)

	ns := term.namespace(term.east)
	term.serve(term.east, ns, "web")
	term.eventually(fmt.Sprintf("explain web -n %s", ns), "all is well", ":80/TCP → 2 endpoints")
	if detail, _ := term.diagnosed("doctor", "data-plane", "east", "pass"); !strings.Contains(detail, "1 of 1 proxies asked") {
		t.Errorf("data-plane: %s", detail)
	}
	explainProxyBehind(t, term, ns)
	explainProxyRefused(t, term, ns)
}

// The proxy cannot reach its API server: it lacks the services that are exported meanwhile, and
// keeps the others.
func explainProxyBehind(t *testing.T, term *terminal, ns string) {
	t.Helper()
	term.east.CP.CutOff()
	term.serve(term.east, ns, "late")
	term.finds(1, "proxy-behind", ns, "late", "east", `hop "data plane" in east`,
		"seamark-proxy has not programmed it on "+nodeproxy.NodeName, "logs -l app.kubernetes.io/component=proxy")
	term.healthy(ns, "web", "east")
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
func startProxy(t *testing.T, m *fleet.Member) {
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
