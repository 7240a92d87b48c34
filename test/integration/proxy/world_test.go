// Package proxy_test sends real traffic through the data plane: pods and a node made of network namespaces, real sockets, the kernel's own
// nftables. Nothing of the kernel is imitated. It needs root.
package proxy_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/proxy"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/integration/proxy/netbed"
)

func TestMain(m *testing.M) { harness.Main(m) }

var (
	vip4 = netip.MustParseAddr("243.1.2.3")
	vip6 = netip.MustParseAddr("fd43::1:2:3")
	// families are run by the tests that have no reason to differ between them.
	families = map[string]bool{"IPv4": false, "IPv6": true}
)

const (
	servicePort = 80
	targetPort  = 8080
)

func vip(ipv6 bool) netip.Addr {
	if ipv6 {
		return vip6
	}
	return vip4
}

func frontend(ipv6 bool) netip.AddrPort { return netip.AddrPortFrom(vip(ipv6), servicePort) }

// world is a node of cluster "here" with three serving pods and a client.
type world struct {
	t      *testing.T
	node   *netbed.Node
	client *netbed.Pod
	pods   []*netbed.Pod
	syncer *proxy.Syncer
	here   model.Location
	logged []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, here: model.Location{Cluster: "here", Node: "node", Zone: "zone-a", Region: "region-1"}}
	var err error
	if w.node, err = netbed.NewNode(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.node.Close(); err != nil {
			t.Error(err)
		}
	})
	w.client = w.pod("client")
	for _, name := range []string{"a", "b", "c"} {
		p := w.pod(name)
		w.pods = append(w.pods, p)
		for _, ipv6 := range families {
			w.serve(p.Namespace, name, netip.AddrPortFrom(p.IP(ipv6), targetPort))
		}
	}
	w.syncer = w.newSyncer()
	return w
}

func (w *world) newSyncer() *proxy.Syncer {
	w.t.Helper()
	table, err := kernel.Open(w.node.FD())
	if err != nil {
		w.t.Fatal(err)
	}
	log := funcr.New(func(_, args string) { w.logged = append(w.logged, args) }, funcr.Options{})
	return proxy.NewSyncer(table, log)
}

func (w *world) pod(name string) *netbed.Pod {
	w.t.Helper()
	p, err := w.node.AddPod(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// serve answers on TCP and UDP until the test ends.
func (w *world) serve(n *netbed.Namespace, name string, at netip.AddrPort) {
	w.t.Helper()
	l, err := n.ServeTCP(name, at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	u, err := n.ServeUDP(name, at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { u.Close() })
}

// service is an imported service with TCP, UDP and SCTP ports of the same number, in both families.
func service(change ...func(*mcsv1beta1.ServiceImport)) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc", CreationTimestamp: metav1.NewTime(time.Unix(1, 0))},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: []string{vip4.String(), vip6.String()},
			Ports: []mcsv1beta1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: servicePort},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: servicePort},
				{Name: "sctp", Protocol: corev1.ProtocolSCTP, Port: servicePort},
			},
		},
	}
	for _, f := range change {
		f(si)
	}
	return si
}

func withAffinity(seconds int32) func(*mcsv1beta1.ServiceImport) {
	return func(si *mcsv1beta1.ServiceImport) {
		si.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		si.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// slicesOf are the slices of some pods of one cluster, one per family.
func slicesOf(cluster string, pods []*netbed.Pod, change ...func(*discoveryv1.Endpoint)) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for name, ipv6 := range families {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc-" + cluster + "-" + name, Labels: map[string]string{
				mcsv1beta1.LabelServiceName: "svc", mcsv1beta1.LabelSourceCluster: cluster,
			}},
			AddressType: discoveryv1.AddressType(name),
		}
		for port, protocol := range map[string]corev1.Protocol{"tcp": corev1.ProtocolTCP, "udp": corev1.ProtocolUDP, "sctp": corev1.ProtocolSCTP} {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(port), Protocol: ptr.To(protocol), Port: ptr.To[int32](targetPort)})
		}
		for _, p := range pods {
			e := discoveryv1.Endpoint{Addresses: []string{p.IP(ipv6).String()}, NodeName: ptr.To("node")}
			for _, f := range change {
				f(&e)
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		out = append(out, s)
	}
	return out
}

// program decides about a service and brings it to the kernel.
func (w *world) program(si *mcsv1beta1.ServiceImport, slices ...*discoveryv1.EndpointSlice) proxy.Outcome {
	w.t.Helper()
	w.syncer.Set(types.NamespacedName{Namespace: si.Namespace, Name: si.Name}, si.CreationTimestamp.Time, model.Build(si, slices, w.here))
	o, err := w.syncer.Sync()
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// ask connects from the client pod and fails the test when that does not work.
func (w *world) ask(ipv6 bool) netbed.Answer {
	w.t.Helper()
	a, err := w.client.TCP(frontend(ipv6))
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// servers connects n times and counts who answered.
func (w *world) servers(n int, ipv6 bool) map[string]int {
	w.t.Helper()
	counts := map[string]int{}
	for range n {
		counts[w.ask(ipv6).Server]++
	}
	return counts
}

var name = types.NamespacedName{Namespace: "ns", Name: "svc"}
