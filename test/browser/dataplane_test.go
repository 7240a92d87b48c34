package browser_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
	"github.com/seamark-dev/seamark/test/nodeproxy"
)

// Faults of a member with the data plane nftables, a real seamark-proxy and a block of two
// clusterset IPs.
func TestDataPlaneFaults(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(t.Context(), cps[0], cps[1:], fleet.Options{
		Direct: true, Blocks: map[string][]netip.Prefix{"east": {netip.MustParsePrefix("243.5.0.0/30")}},
		DataPlanes: map[string]v1alpha1.DataPlane{"east": v1alpha1.DataPlaneNFTables},
	})
	if err != nil {
		t.Fatal(err)
	}
	east := f.Members[0]
	node := startProxy(t, east)
	c := newClusterset(t, f, func(m *fleet.Member) *rest.Config { return m.CP.DirectConfig() })
	ns := fleet.NewNamespace(t, east)
	tab := c.open("/services?all=1")
	for _, name := range []string{"one", "two"} {
		c.serve(east, ns, name)
		healthy(tab, ns, name)
	}
	c.serve(east, ns, "three")
	c.named(tab, ns, "three", "no-clusterset-ip-left")

	owner := exec.Command("nft", "-i") // another process owns the table, so the kernel refuses the proxy
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
	c.named(tab, ns, "one", "proxy-behind")
	if err := commands.Close(); err != nil {
		t.Fatal(err)
	}
	<-exited
	healthy(tab, ns, "one")
}

// startProxy runs seamark-proxy for a member on a node, with the objects that its chart has and a
// kubelet would report.
func startProxy(t testing.TB, m *fleet.Member) *netbed.Node {
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
	address, err := node.LinkToHost()
	if err != nil {
		t.Fatal(err)
	}
	nodeproxy.Install(t, node, m.CP).StartReady()
	name := metav1.ObjectMeta{Name: programmed.ReaderAccount}
	labels := map[string]string{"app.kubernetes.io/name": "seamark", "app.kubernetes.io/component": "proxy"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.org/none"}}},
	}
	proxies := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "seamark-proxy"},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "seamark-proxy-1", Labels: labels}, Spec: template.Spec}
	pod.Spec.NodeName = nodeproxy.NodeName
	m.Create(t,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: programmed.ReaderAccount}},
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{programmed.Path}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: programmed.ReaderAccount},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: objects.AgentNamespace, Name: programmed.ReaderAccount}},
		}, proxies, pod)
	proxies.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, NumberReady: 1}
	if err := m.Client.Status().Update(context.Background(), proxies); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, address.String()
	if err := m.Client.Status().Update(context.Background(), pod); err != nil {
		t.Fatal(err)
	}
	return node
}
