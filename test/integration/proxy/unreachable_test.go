package proxy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/test/harness"
)

// publish writes which clusters are unreachable, as the agent does.
func (c *testCluster) publish(clusters ...reachable.Key) {
	c.t.Helper()
	unreachable := reachable.Unreachables{}
	for _, key := range clusters {
		unreachable[key] = time.Now()
	}
	c.publishValue(reachable.Property(unreachable).Spec.Value)
}

func (c *testCluster) publishValue(value string) {
	c.t.Helper()
	property := &aboutv1beta1.ClusterProperty{}
	err := c.api.Get(c.t.Context(), client.ObjectKey{Name: v1alpha1.PropertyUnreachableClusters}, property)
	property.Name, property.Spec.Value = v1alpha1.PropertyUnreachableClusters, value
	if err == nil {
		err = c.api.Update(c.t.Context(), property)
	} else if client.IgnoreNotFound(err) == nil {
		err = c.api.Create(c.t.Context(), property)
	}
	if err != nil {
		c.t.Fatalf("publish %q: %v", value, err)
	}
}

func (c *testCluster) deleteUnreachable() {
	c.t.Helper()
	property := &aboutv1beta1.ClusterProperty{}
	property.Name = v1alpha1.PropertyUnreachableClusters
	if err := c.api.Delete(c.t.Context(), property); err != nil {
		c.t.Fatal(err)
	}
}

// awaitServers waits until connections reach all of the named pods and no others.
func (c *testCluster) awaitServers(what string, ipv6 bool, want ...string) {
	c.t.Helper()
	harness.Eventually(c.t, what, func() error {
		var got []string
		for range 40 { // that one of three is missing by chance has a probability of 10^-7
			answer, err := c.client.TCP(frontend(ipv6))
			if err != nil {
				return err
			}
			if !slices.Contains(got, answer.Server) {
				got = append(got, answer.Server)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("connections reach %v", got)
		}
		return nil
	})
}

// Endpoints of a cluster that the agent published as unreachable get no new connections where
// another cluster serves the port in that family. Established connections to other clusters go on.
func TestUnreachableClusterIsLeftOut(t *testing.T) {
	c := newCluster(t)
	withEcho := func(si *mcsv1beta1.ServiceImport) {
		si.Spec.Ports = append(si.Spec.Ports, mcsv1beta1.ServicePort{Name: echoing, Protocol: corev1.ProtocolTCP, Port: echoPort})
	}
	c.create(service(withEcho))
	here, there := slicesOf("here", c.pods[:1]), slicesOf("there", c.pods[1:])
	for _, s := range slices.Concat(here, there) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(echoing), Port: ptr.To[int32](echoPort)})
	}
	for _, p := range c.pods {
		c.echo(p.Namespace, p.IPv4)
	}
	c.createSlices(slices.Concat(here, there))
	c.StartReady()
	for name, ipv6 := range families {
		c.awaitServers(name+": all clusters are reachable", ipv6, "a", "b", "c")
	}
	// Connections from before the change, at least one of them to each pod.
	var established []func()
	for i := range 30 {
		conn := c.dial(netip.AddrPortFrom(vip4, echoPort))
		established = append(established, func() { c.checkEcho(fmt.Sprintf("established connection %d", i), conn) })
	}
	checkEstablished := func() {
		t.Helper()
		for _, check := range established {
			check()
		}
	}
	udp := map[string]string{"a": "a", "b": "a", "c": "a"} // where flows lead after the change
	flows := map[string]func() (string, error){}
	for was := range udp {
		flow := c.flowTo(was)
		flows[was] = func() (string, error) { answer, err := flow.Exchange(); return answer.Server, err }
	}

	c.publish(reachable.Key{Cluster: "there", Family: corev1.IPv4Protocol})
	c.awaitServers("there is unreachable over IPv4", false, "a")
	c.awaitServers("there is reachable over IPv6", true, "a", "b", "c")
	checkEstablished()
	for was, want := range udp {
		harness.Eventually(t, "the UDP flow to "+was+" leads to "+want, func() error {
			server, err := flows[was]()
			if err == nil && server != want {
				err = fmt.Errorf("it leads to %s", server)
			}
			return err
		})
	}
	c.publish(reachable.Key{Cluster: "there", Family: corev1.IPv6Protocol})
	c.awaitServers("there is unreachable over IPv6 only", true, "a")
	c.awaitServers("there is reachable over IPv4 again", false, "a", "b", "c")

	c.publish(reachable.Key{Cluster: "here", Family: corev1.IPv4Protocol}, reachable.Key{Cluster: "there", Family: corev1.IPv4Protocol})
	c.awaitServers("no cluster is reachable over IPv4", false, "a", "b", "c")
	c.awaitServers("all clusters are reachable over IPv6", true, "a", "b", "c")
	checkEstablished()
}

// What only the unreachable cluster serves stays, and is left out when another cluster serves it.
// The property may be there before the proxy starts.
func TestOnlyProviderIsKept(t *testing.T) {
	c := newCluster(t)
	c.publish(reachable.Key{Cluster: "there", Family: corev1.IPv4Protocol})
	c.create(service())
	c.createSlices(slicesOf("there", c.pods[1:]))
	c.StartReady()
	c.awaitServers("the only provider", false, "b", "c")
	here := slicesOf("here", c.pods[:1])
	c.createSlices(here)
	c.awaitServers("another cluster serves", false, "a")
	for _, s := range here {
		s.Endpoints[0].Conditions.Ready = ptr.To(false)
		if err := c.api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitServers("the other cluster has no ready endpoint", false, "b", "c")
	for _, s := range here {
		s.Endpoints[0].Conditions.Ready = ptr.To(true)
		if err := c.api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitServers("the other cluster is ready again", false, "a")
	c.publishValue("there is a storm")
	c.awaitServers("an unreadable property", false, "a", "b", "c")
	c.publish(reachable.Key{Cluster: "there", Family: corev1.IPv4Protocol})
	c.awaitServers("a readable property", false, "a")
	c.deleteUnreachable()
	c.awaitServers("the property is deleted", false, "a", "b", "c")
}

// After a start, the first table leaves out what the property names: no connection reaches the
// unreachable cluster, not even for a moment.
func TestUnreachableFromTheStart(t *testing.T) {
	c := newCluster(t)
	c.publish(reachable.Key{Cluster: "there", Family: corev1.IPv4Protocol})
	c.create(service())
	c.createSlices(slices.Concat(slicesOf("here", c.pods[:1]), slicesOf("there", c.pods[1:])))
	c.Start()
	harness.Eventually(t, "the first connection", func() error {
		answer, err := c.client.TCPWithin(frontend(false), time.Second)
		if err == nil && answer.Server != "a" {
			t.Fatalf("a connection reached %s", answer.Server)
		}
		return err
	})
	if got := c.countServers(100, false); got["a"] != 100 {
		t.Errorf("connections reached %v", got)
	}
}
