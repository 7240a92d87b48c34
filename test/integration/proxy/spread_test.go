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
	"github.com/seamark-dev/seamark/test/integration/proxy/netbed"
)

func TestEvenSpread(t *testing.T) {
	w := newWorld(t)
	w.program(service(), append(slicesOf("here", w.pods[:1]), slicesOf("there", w.pods[1:])...)...)
	for name, ipv6 := range families {
		// The choice is random: of 3,000 connections every tenth run would have a share that is off by more than five percent, of five times as
		// many one run in ten thousand.
		const n = 15000
		counts := w.servers(n, ipv6)
		for _, p := range w.pods {
			if share := float64(counts[p.Name]) / (n / 3); share < 0.95 || share > 1.05 {
				t.Errorf("%s: %d connections were spread %v", name, n, counts)
			}
		}
	}
}

func TestSourceAddressIsKept(t *testing.T) {
	w := newWorld(t)
	w.program(service(), slicesOf("here", w.pods)...)
	for name, ipv6 := range families {
		for range 10 {
			if a := w.ask(ipv6); a.Client != w.client.IP(ipv6) {
				t.Errorf("%s: the server saw %s, the client is %s", name, a.Client, w.client.IP(ipv6))
			}
		}
	}
}

func TestHostProcessAsClient(t *testing.T) {
	w := newWorld(t)
	w.program(service(), slicesOf("here", w.pods)...)
	for name, ipv6 := range families {
		seen := map[string]bool{}
		for range 60 {
			a, err := w.node.TCP(frontend(ipv6))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen[a.Server] = true
		}
		if len(seen) != len(w.pods) {
			t.Errorf("%s: a process of the node reached only %v", name, seen)
		}
		if _, err := w.node.UDPOnce(frontend(ipv6)); err != nil {
			t.Errorf("%s: UDP: %v", name, err)
		}
	}
}

// A pod that is chosen for its own connection must not see itself as the client: it would answer itself, past the node.
func TestHairpin(t *testing.T) {
	w := newWorld(t)
	w.program(service(), slicesOf("here", w.pods[:1])...)
	for name, ipv6 := range families {
		pod := w.pods[0]
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

// A process of the node can be an endpoint too, and reach itself.
func TestHairpinOfHostProcess(t *testing.T) {
	w := newWorld(t)
	w.serve(w.node.Namespace, "host", netip.AddrPortFrom(netbed.NodeIPv4, targetPort))
	w.serve(w.node.Namespace, "host", netip.AddrPortFrom(netbed.NodeIPv6, targetPort))
	host := &netbed.Pod{Name: "host", IPv4: netbed.NodeIPv4, IPv6: netbed.NodeIPv6}
	w.program(service(), slicesOf("here", []*netbed.Pod{host})...)
	for name, ipv6 := range families {
		for who, client := range map[string]*netbed.Namespace{"itself": w.node.Namespace, "a pod": w.client.Namespace} {
			a, err := client.TCP(frontend(ipv6))
			if err != nil || a.Server != "host" {
				t.Errorf("%s: %s reached %q: %v", name, who, a.Server, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t)
	w.program(service(), slicesOf("here", w.pods)...)
	unknown := func(ipv6 bool) netip.AddrPort { return netip.AddrPortFrom(vip(ipv6), servicePort+1) }
	for name, ipv6 := range families {
		w.refused(name+": unknown port", unknown(ipv6))
	}
	w.program(service())
	for name, ipv6 := range families {
		w.refused(name+": no endpoints", frontend(ipv6))
	}
}

// refused checks that pods and processes of the node are refused at once, and not left waiting.
func (w *world) refused(what string, to netip.AddrPort) {
	w.t.Helper()
	for who, client := range map[string]*netbed.Namespace{"pod": w.client.Namespace, "node": w.node.Namespace} {
		if _, err := client.TCP(to); !errors.Is(err, syscall.ECONNREFUSED) {
			w.t.Errorf("%s, TCP from the %s: %v", what, who, err)
		}
		if _, err := client.UDPOnce(to); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EPERM) {
			w.t.Errorf("%s, UDP from the %s: %v", what, who, err)
		}
	}
}

// Port "extra" exists in the cluster that won a conflict about it. The loser's slices lack it, and its pods never see such a connection.
func TestLostPortGetsNoTraffic(t *testing.T) {
	w := newWorld(t)
	for _, p := range w.pods {
		for _, ipv6 := range families {
			w.serve(p.Namespace, p.Name, netip.AddrPortFrom(p.IP(ipv6), 9090))
		}
	}
	winner := slicesOf("here", w.pods[:1])
	for _, s := range winner {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("extra"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](9090)})
	}
	si := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.Ports = append(si.Spec.Ports, mcsv1beta1.ServicePort{Name: "extra", Protocol: corev1.ProtocolTCP, Port: 81})
	})
	w.program(si, append(winner, slicesOf("there", w.pods[1:])...)...)
	for range 100 {
		a, err := w.client.TCP(netip.AddrPortFrom(vip4, 81))
		if err != nil || a.Server != w.pods[0].Name {
			t.Fatalf("%s answered: %v", a.Server, err)
		}
	}
	w.program(si, slicesOf("there", w.pods[1:])...) // the winner is gone, and the port with it
	w.refused("lost port", netip.AddrPortFrom(vip4, 81))
}

func TestLocality(t *testing.T) {
	w := newWorld(t)
	onNode := func(name string) func(*discoveryv1.Endpoint) {
		return func(e *discoveryv1.Endpoint) { e.NodeName = ptr.To(name) }
	}
	inZone := func(name string) func(*discoveryv1.Endpoint) {
		return func(e *discoveryv1.Endpoint) { e.Zone = ptr.To(name) }
	}
	a := slicesOf("here", w.pods[:1], inZone("zone-b"))
	b := slicesOf("there", w.pods[1:2], inZone("zone-a"))
	c := slicesOf("there", w.pods[2:], inZone("zone-c"))
	for _, s := range c {
		s.Name += "-c"
		s.Annotations = map[string]string{v1alpha1.AnnotationRegion: "region-1"}
	}
	all := slices.Concat(a, b, c)
	elsewhere := slices.Concat(slicesOf("here", w.pods[:1], inZone("zone-b"), onNode("other")), c)
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
		wish   func(*mcsv1beta1.ServiceImport)
		slices []*discoveryv1.EndpointSlice
		want   []string
	}{
		{"no wish", func(*mcsv1beta1.ServiceImport) {}, all, []string{"a", "b", "c"}},
		{"node", distribution(corev1.ServiceTrafficDistributionPreferSameNode), all, []string{"a"}},
		{"zone", distribution(corev1.ServiceTrafficDistributionPreferSameZone), all, []string{"b"}},
		{"close", distribution(corev1.ServiceTrafficDistributionPreferClose), all, []string{"b"}},
		{"region", prefer("region"), all, []string{"c"}},
		{"cluster", prefer("cluster"), all, []string{"a"}},
		{"node and zone empty, region next", distribution(corev1.ServiceTrafficDistributionPreferSameNode), elsewhere, []string{"c"}},
		{"nothing near", distribution(corev1.ServiceTrafficDistributionPreferSameNode), b[:0:0], nil},
		{"value of a later version", distribution("PreferSameRack"), all, []string{"a", "b", "c"}},
	} {
		w.program(service(test.wish), test.slices...)
		if test.want == nil {
			w.refused(test.name, frontend(false))
			continue
		}
		if got := slices.Sorted(maps.Keys(w.servers(60, false))); !slices.Equal(got, test.want) {
			t.Errorf("%s: reached %v, want %v", test.name, got, test.want)
		}
	}
}

// Local means this node. Where it has nothing while others have, packets are dropped, as kube-proxy does.
func TestInternalTrafficPolicyLocal(t *testing.T) {
	w := newWorld(t)
	local := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	})
	// A node of another cluster may have the same name as ours.
	w.program(local, append(slicesOf("here", w.pods[:1]), slicesOf("there", w.pods[1:])...)...)
	if got := w.servers(60, false); len(got) != 1 || got["a"] == 0 {
		t.Errorf("reached %v, want only a", got)
	}
	w.program(local, slicesOf("there", w.pods[1:])...)
	if !w.dropped(frontend(false)) {
		t.Error("a connection was answered although no endpoint is on this node")
	}
	w.program(local)
	w.refused("no endpoint anywhere", frontend(false))
}
