package proxy_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

// On the node of a real cluster kube-proxy runs too. Each of the two serves its own addresses, and
// neither disturbs the other's rules.
func TestBesideKubeProxy(t *testing.T) {
	c := newCluster(t)
	c.Start()
	c.startKubeProxy()
	c.WaitReady()
	c.create(service())
	c.createSlices(slicesOf("here", c.pods))
	local := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "local"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "tcp", Port: servicePort}}},
	}
	c.create(local)
	clusterIP := netip.MustParseAddr(local.Spec.ClusterIP)
	for _, s := range slicesOf("here", c.pods[:1]) {
		if s.AddressType == discoveryv1.AddressTypeIPv4 {
			s.Labels = map[string]string{discoveryv1.LabelServiceName: "local"}
			s.Name = "local"
			c.create(s)
		}
	}
	for origin, client := range map[string]*netbed.Namespace{
		"a pod": c.client.Namespace, "the node": c.node.Namespace, "the endpoint itself": c.pods[0].Namespace,
	} {
		for _, to := range []netip.AddrPort{frontend(false), frontend(true), netip.AddrPortFrom(clusterIP, servicePort)} {
			harness.Eventually(t, fmt.Sprintf("%s reaches %s", origin, to), func() error {
				_, err := client.TCP(to)
				return err
			})
		}
	}
	if a := c.connect(false); a.Client != c.client.IPv4 {
		t.Errorf("the server saw %s, the client is %s", a.Client, c.client.IPv4)
	}
	c.checkRefused("unknown port", netip.AddrPortFrom(vip4, servicePort+1))
}

func (c *testCluster) startKubeProxy() *exec.Cmd {
	c.t.Helper()
	kube, err := kubeparts.Kube(c.t.Context(), os.Stderr)
	if err != nil {
		c.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(c.t.TempDir(), "kube-proxy.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(kube, "kube-proxy", "--kubeconfig", c.Kubeconfig, "--proxy-mode=nftables", "--hostname-override=node",
		"--conntrack-max-per-core=0", "--cluster-cidr=10.77.0.0/16,fd77::/64")
	cmd.Stdout, cmd.Stderr = log, log
	exited, err := c.node.Start(cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if text, err := os.ReadFile(log.Name()); c.t.Failed() && err == nil {
			c.t.Logf("log of kube-proxy:\n%s", text)
		}
	})
	return cmd
}
