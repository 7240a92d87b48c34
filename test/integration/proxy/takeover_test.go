package proxy_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

// echoing is the name of a port whose connections stay open.
const echoing = "echo"

// createDerived creates the Service by which kube-proxy serves the address of service(), and the
// import without the other family. An address outside of the range of ClusterIPs is an external IP.
func (c *testCluster) createDerived() {
	c.t.Helper()
	si := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.IPs = []string{vip4.String()}
		si.Spec.Ports[2] = mcsv1beta1.ServicePort{Name: echoing, Protocol: corev1.ProtocolTCP, Port: echoPort}
	})
	derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: si.Namespace, Name: si.Name}}
	derived.Spec.ExternalIPs = si.Spec.IPs
	for _, p := range si.Spec.Ports {
		derived.Spec.Ports = append(derived.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	c.create(derived, si)
}

// derivedSlices are slices that kube-proxy reads, too.
func derivedSlices(cluster string, pods []*netbed.Pod) []*discoveryv1.EndpointSlice {
	ipv6 := func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == discoveryv1.AddressTypeIPv6 }
	out := slices.DeleteFunc(slicesOf(cluster, pods), ipv6)
	for _, s := range out {
		s.Labels[discoveryv1.LabelServiceName] = s.Labels[mcsv1beta1.LabelServiceName]
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(echoing), Port: ptr.To[int32](echoPort)})
	}
	return out
}

// hasRules reports whether the node's table has the address of service().
func (env *testEnv) hasRules() bool {
	env.t.Helper()
	content, err := kernel.Open(env.node.FD(), env.masquerade).Read()
	if err != nil {
		env.t.Fatal(err)
	}
	return slices.ContainsFunc(content.Elements, func(e ruleset.Element) bool {
		return e.Set.Kind == ruleset.VIPs && e.Key == string(vip4.AsSlice())
	})
}

// awaitFlows waits until new UDP flows reach a server.
func (c *testCluster) awaitFlows(what, server string) {
	c.t.Helper()
	harness.Eventually(c.t, what, func() error {
		for range 20 {
			flow, err := c.client.UDP(frontend(false))
			if err != nil {
				return err
			}
			answer, err := flow.Exchange()
			flow.Close()
			if err == nil && answer.Server == server {
				return nil
			}
		}
		return fmt.Errorf("no flow reaches %s", server)
	})
}

// Beside kube-proxy, the proxy takes over a service when a cluster that serves it becomes
// unreachable, without waiting for kube-proxy, and moves what kube-proxy has tracked. Everything
// else is kube-proxy's, and so is all when the proxy ends.
func TestFailoverBesideKubeProxy(t *testing.T) {
	c := newCluster(t)
	kubeProxy := c.startKubeProxy()
	c.createDerived()
	for _, p := range c.pods[:2] {
		c.echo(p.Namespace, p.IPv4)
	}
	there := derivedSlices("there", c.pods[1:2])
	c.createSlices(there)
	process := c.StartReady("--failover-only")
	c.awaitServers("kube-proxy serves", false, "b")
	toThere := c.flowTo("b")
	answer := c.swallow(c.pods[1])
	pending := c.connectTo(c.pods[1], false)
	c.createSlices(derivedSlices("here", c.pods[:1]))
	c.awaitFlows("kube-proxy knows both clusters", "a")
	toHere := c.flowTo("a")
	var established []net.Conn
	for range 10 {
		established = append(established, c.dial(netip.AddrPortFrom(vip4, echoPort)))
	}
	checkEstablished := func(when string) {
		t.Helper()
		for i, conn := range established {
			c.checkEcho(fmt.Sprintf("%s: established connection %d", when, i), conn)
		}
	}
	checkEstablished("before")
	if c.hasRules() {
		t.Error("the proxy has taken over a service of which all clusters are reachable")
	}

	signal := func(s syscall.Signal) {
		t.Helper()
		if err := kubeProxy.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	c.publish(reachable.Key{Cluster: "there", Family: corev1.IPv4Protocol})
	c.checkReached("there is unreachable", pending, "a")
	c.awaitServers("there is unreachable", false, "a")
	harness.Eventually(t, "the UDP flow to the unreachable cluster moves", func() error {
		a, err := toThere.Exchange()
		if err == nil && a.Server != "a" {
			err = fmt.Errorf("it leads to %s", a.Server)
		}
		return err
	})
	c.checkFlow("a flow to another cluster", toHere, "a")
	checkEstablished("taken over")

	// The agent has left the endpoints out, and kube-proxy has not followed.
	for _, s := range there {
		if err := c.api.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		s.ResourceVersion, s.UID = "", ""
	}
	harness.Consistently(t, "the service stays taken over", 2*time.Second, func() error {
		if got := c.countServers(20, false); got["a"] != 20 || !c.hasRules() {
			return fmt.Errorf("connections reached %v", got)
		}
		return nil
	})

	// The cluster returns. Endpoints that follow are used before the hand-over, too.
	answer()
	c.deleteUnreachable()
	c.create(there[0])
	c.awaitServers("there is reachable again", false, "a", "b")
	if !c.hasRules() {
		t.Error("the service was handed over at once")
	}
	signal(syscall.SIGCONT)
	process.SignalAndWait(syscall.SIGTERM)
	if c.hasRules() {
		t.Error("rules are left that hide those of kube-proxy")
	}
	c.awaitServers("kube-proxy serves again", false, "a", "b")
	checkEstablished("handed over")
}

// Flows of a service that is handed over stay where they are.
func TestHandOverKeepsFlows(t *testing.T) {
	for name, handsOver := range map[string]bool{"handed over": true, "removed": false} {
		t.Run(name, func(t *testing.T) {
			env := newTestEnv(t)
			env.syncer.HandsOver = handsOver
			si := service()
			env.program(si, slicesOf("here", env.pods[:1])...)
			env.flowTo("a")
			udp := func() (count int) {
				_, err := kernel.OpenConntrack(env.node.FD()).Delete(func(flow ruleset.Flow) bool {
					if flow.Protocol == ruleset.UDP && flow.VIP == vip4 {
						count++
					}
					return false
				})
				if err != nil {
					t.Fatal(err)
				}
				return count
			}
			if udp() != 1 {
				t.Fatalf("%d flows are tracked", udp())
			}
			env.syncer.Set(types.NamespacedName{Namespace: si.Namespace, Name: si.Name}, si.CreationTimestamp.Time, model.Result{})
			env.sync()
			if env.hasRules() {
				t.Error("the address is still in the table")
			}
			if got, want := udp(), map[bool]int{true: 1, false: 0}[handsOver]; got != want {
				t.Errorf("%d flows are tracked, want %d", got, want)
			}
		})
	}
}
