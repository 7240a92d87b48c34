package proxy_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/netbed"
)

func TestEvenSpread(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), append(slicesOf("here", env.pods[:1]), slicesOf("there", env.pods[1:])...)...)
	for name, ipv6 := range families {
		// The choice is random: with 3,000 connections a share would be off by more than five percent in
		// one run of ten, with five times as many in one run of ten thousand.
		const n = 15000
		counts := env.countServers(n, ipv6)
		for _, p := range env.pods {
			if share := float64(counts[p.Name]) / (n / 3); share < 0.95 || share > 1.05 {
				t.Errorf("%s: %d connections were spread %v", name, n, counts)
			}
		}
	}
}

func TestSourceAddressIsKept(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods)...)
	for name, ipv6 := range families {
		for range 10 {
			if a := env.connect(ipv6); a.Client != env.client.IP(ipv6) {
				t.Errorf("%s: the server saw %s, the client is %s", name, a.Client, env.client.IP(ipv6))
			}
		}
	}
}

func TestHostProcessAsClient(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods)...)
	for name, ipv6 := range families {
		seen := map[string]bool{}
		for range 60 {
			a, err := env.node.TCP(frontend(ipv6))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen[a.Server] = true
		}
		if len(seen) != len(env.pods) {
			t.Errorf("%s: a process of the node reached only %v", name, seen)
		}
		if _, err := env.node.UDPOnce(frontend(ipv6)); err != nil {
			t.Errorf("%s: UDP: %v", name, err)
		}
	}
}

// A pod that is chosen for its own connection must not see itself as the client: it would reply to
// itself directly, and the reply would not be translated back.
func TestHairpin(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods[:1])...)
	for name, ipv6 := range families {
		pod := env.pods[0]
		a, err := pod.TCP(frontend(ipv6))
		if err != nil {
			t.Fatalf("%s: a pod cannot reach itself: %v", name, err)
		}
		if a.Server != pod.Name || a.Client == pod.IP(ipv6) {
			t.Errorf("%s: %s answered and saw %s", name, a.Server, a.Client)
		}
		if _, err := pod.UDPOnce(frontend(ipv6)); err != nil {
			t.Errorf("%s: UDP: %v", name, err)
		}
	}
}

// A process of the node can be an endpoint too, and connect to itself.
func TestHairpinOfHostProcess(t *testing.T) {
	env := newTestEnv(t)
	env.serve(env.node.Namespace, "host", netip.AddrPortFrom(netbed.NodeIPv4, targetPort))
	env.serve(env.node.Namespace, "host", netip.AddrPortFrom(netbed.NodeIPv6, targetPort))
	host := &netbed.Pod{Name: "host", IPv4: netbed.NodeIPv4, IPv6: netbed.NodeIPv6}
	env.program(service(), slicesOf("here", []*netbed.Pod{host})...)
	for name, ipv6 := range families {
		for origin, client := range map[string]*netbed.Namespace{"itself": env.node.Namespace, "a pod": env.client.Namespace} {
			a, err := client.TCP(frontend(ipv6))
			if err != nil || a.Server != "host" {
				t.Errorf("%s: %s reached %q: %v", name, origin, a.Server, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods)...)
	unknown := func(ipv6 bool) netip.AddrPort { return netip.AddrPortFrom(vip(ipv6), servicePort+1) }
	for name, ipv6 := range families {
		env.checkRefused(name+": unknown port", unknown(ipv6))
	}
	env.program(service())
	for name, ipv6 := range families {
		env.checkRefused(name+": no endpoints", frontend(ipv6))
	}
}

// checkRefused checks that connections of pods and of the node's processes are refused at once
// instead of timing out.
func (env *testEnv) checkRefused(what string, to netip.AddrPort) {
	env.t.Helper()
	for origin, client := range map[string]*netbed.Namespace{"pod": env.client.Namespace, "node": env.node.Namespace} {
		if _, err := client.TCP(to); !errors.Is(err, syscall.ECONNREFUSED) {
			env.t.Errorf("%s, TCP from the %s: %v", what, origin, err)
		}
		if _, err := client.UDPOnce(to); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EPERM) {
			env.t.Errorf("%s, UDP from the %s: %v", what, origin, err)
		}
	}
}

// Only the cluster that won a conflict has port "extra". The loser's slices lack it, and its pods
// never get such a connection.
func TestLostPortGetsNoTraffic(t *testing.T) {
	env := newTestEnv(t)
	for _, p := range env.pods {
		for _, ipv6 := range families {
			env.serve(p.Namespace, p.Name, netip.AddrPortFrom(p.IP(ipv6), 9090))
		}
	}
	winner := slicesOf("here", env.pods[:1])
	for _, s := range winner {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("extra"), Protocol: ptr.To(corev1.ProtocolTCP),
			Port: ptr.To[int32](9090)})
	}
	si := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.Ports = append(si.Spec.Ports, mcsv1beta1.ServicePort{Name: "extra", Protocol: corev1.ProtocolTCP, Port: 81})
	})
	env.program(si, append(winner, slicesOf("there", env.pods[1:])...)...)
	for range 100 {
		a, err := env.client.TCP(netip.AddrPortFrom(vip4, 81))
		if err != nil || a.Server != env.pods[0].Name {
			t.Fatalf("%s answered: %v", a.Server, err)
		}
	}
	env.program(si, slicesOf("there", env.pods[1:])...) // the winner is gone, and the port with it
	env.checkRefused("lost port", netip.AddrPortFrom(vip4, 81))
}

func TestLocality(t *testing.T) {
	env := newTestEnv(t)
	onNode := func(name string) func(*discoveryv1.Endpoint) {
		return func(e *discoveryv1.Endpoint) { e.NodeName = ptr.To(name) }
	}
	inZone := func(name string) func(*discoveryv1.Endpoint) {
		return func(e *discoveryv1.Endpoint) { e.Zone = ptr.To(name) }
	}
	a := slicesOf("here", env.pods[:1], inZone("zone-b"))
	b := slicesOf("there", env.pods[1:2], inZone("zone-a"))
	c := slicesOf("there", env.pods[2:], inZone("zone-c"))
	for _, s := range c {
		s.Name += "-c"
		s.Annotations = map[string]string{v1alpha1.AnnotationRegion: "region-1"}
	}
	all := slices.Concat(a, b, c)
	elsewhere := slices.Concat(slicesOf("here", env.pods[:1], inZone("zone-b"), onNode("other")), c)
	distribution := func(value string) func(*mcsv1beta1.ServiceImport) {
		return func(si *mcsv1beta1.ServiceImport) { si.Spec.TrafficDistribution = &value }
	}
	prefer := func(value string) func(*mcsv1beta1.ServiceImport) {
		return func(si *mcsv1beta1.ServiceImport) {
			si.Annotations = map[string]string{v1alpha1.AnnotationPrefer: value}
		}
	}
	for _, test := range []struct {
		name   string
		prefer func(*mcsv1beta1.ServiceImport)
		slices []*discoveryv1.EndpointSlice
		want   []string
	}{
		{"no preference", func(*mcsv1beta1.ServiceImport) {}, all, []string{"a", "b", "c"}},
		{"node", distribution(corev1.ServiceTrafficDistributionPreferSameNode), all, []string{"a"}},
		{"zone", distribution(corev1.ServiceTrafficDistributionPreferSameZone), all, []string{"b"}},
		{"close", distribution(corev1.ServiceTrafficDistributionPreferClose), all, []string{"b"}},
		{"region", prefer("region"), all, []string{"c"}},
		{"cluster", prefer("cluster"), all, []string{"a"}},
		{"node and zone empty, region next", distribution(corev1.ServiceTrafficDistributionPreferSameNode), elsewhere, []string{"c"}},
		{"nothing near", distribution(corev1.ServiceTrafficDistributionPreferSameNode), b[:0:0], nil},
		{"value of a later version", distribution("PreferSameRack"), all, []string{"a", "b", "c"}},
	} {
		env.program(service(test.prefer), test.slices...)
		if test.want == nil {
			env.checkRefused(test.name, frontend(false))
			continue
		}
		if got := slices.Sorted(maps.Keys(env.countServers(60, false))); !slices.Equal(got, test.want) {
			t.Errorf("%s: reached %v, want %v", test.name, got, test.want)
		}
	}
}

// Local means this node. If it has no endpoint while other nodes have, packets are dropped, as
// kube-proxy does.
func TestInternalTrafficPolicyLocal(t *testing.T) {
	env := newTestEnv(t)
	local := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	})
	// A node of another cluster may have the same name.
	env.program(local, append(slicesOf("here", env.pods[:1]), slicesOf("there", env.pods[1:])...)...)
	if got := env.countServers(60, false); len(got) != 1 || got["a"] == 0 {
		t.Errorf("reached %v, want only a", got)
	}
	env.program(local, slicesOf("there", env.pods[1:])...)
	if !env.isDropped(frontend(false)) {
		t.Error("a connection was answered although no endpoint is on this node")
	}
	env.program(local)
	env.checkRefused("no endpoint anywhere", frontend(false))
}
