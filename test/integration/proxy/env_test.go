// Package proxy_test sends real traffic through the data plane: pods and a node made of network
// namespaces, real sockets, the kernel's own nftables. It needs root.
package proxy_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
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
	"github.com/seamark-dev/seamark/test/netbed"
)

func TestMain(m *testing.M) { harness.Main(m) }

var (
	vip4 = netip.MustParseAddr("243.1.2.3")
	vip6 = netip.MustParseAddr("fd43::1:2:3")
	// clusterSetRanges are the ranges of vip4 and vip6.
	clusterSetRanges = []netip.Prefix{netip.MustParsePrefix("243.0.0.0/8"), netip.MustParsePrefix("fd43::/48")}
	// families are both run by tests that treat them alike.
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

// testEnv is a node of cluster "here" with three serving pods and a client.
type testEnv struct {
	t        *testing.T
	node     *netbed.Node
	client   *netbed.Pod
	pods     []*netbed.Pod
	syncer   *proxy.Syncer
	location model.Location
	logLines []string

	masquerade kernel.Masquerade
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	env := &testEnv{t: t, masquerade: kernel.MasqueradeHost}
	env.location = model.Location{Cluster: "here", Node: "node", Zone: "zone-a", Region: "region-1"}
	var err error
	if env.node, err = netbed.NewNode(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.node.Close(); err != nil {
			t.Error(err)
		}
	})
	env.client = env.addPod("client")
	for _, name := range []string{"a", "b", "c"} {
		p := env.addPod(name)
		env.pods = append(env.pods, p)
		for _, ipv6 := range families {
			env.serve(p.Namespace, name, netip.AddrPortFrom(p.IP(ipv6), targetPort))
		}
	}
	env.syncer = env.newSyncer()
	return env
}

func (env *testEnv) newSyncer() *proxy.Syncer {
	env.t.Helper()
	return proxy.NewSyncer(kernel.Open(env.node.FD(), env.masquerade), kernel.OpenConntrack(env.node.FD()), env.log())
}

func (env *testEnv) log() logr.Logger {
	return funcr.New(func(_, args string) { env.logLines = append(env.logLines, args) }, funcr.Options{})
}

func (env *testEnv) addPod(name string) *netbed.Pod {
	env.t.Helper()
	p, err := env.node.AddPod(name)
	if err != nil {
		env.t.Fatal(err)
	}
	return p
}

// serve answers on TCP and UDP until the test ends.
func (env *testEnv) serve(n *netbed.Namespace, name string, at netip.AddrPort) {
	env.t.Helper()
	l, err := n.ServeTCP(name, at)
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { l.Close() })
	u, err := n.ServeUDP(name, at)
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { u.Close() })
}

// service returns an imported service with TCP, UDP and SCTP ports of the same number, in both
// families.
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

// slicesOf returns the slices of some pods of one cluster, one for each family.
func slicesOf(cluster string, pods []*netbed.Pod, change ...func(*discoveryv1.Endpoint)) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for name, ipv6 := range families {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc-" + cluster + "-" + name, Labels: map[string]string{
				mcsv1beta1.LabelServiceName: "svc", mcsv1beta1.LabelSourceCluster: cluster,
			}},
			AddressType: discoveryv1.AddressType(name),
		}
		for port, protocol := range map[string]corev1.Protocol{"tcp": corev1.ProtocolTCP, "udp": corev1.ProtocolUDP,
			"sctp": corev1.ProtocolSCTP} {
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

// program rebuilds a service and syncs it to the kernel.
func (env *testEnv) program(si *mcsv1beta1.ServiceImport, slices ...*discoveryv1.EndpointSlice) proxy.Outcome {
	env.t.Helper()
	env.set(si, slices...)
	return env.sync()
}

func (env *testEnv) set(si *mcsv1beta1.ServiceImport, slices ...*discoveryv1.EndpointSlice) {
	env.syncer.Set(types.NamespacedName{Namespace: si.Namespace, Name: si.Name}, si.CreationTimestamp.Time,
		model.Build(si, slices, env.location))
}

// sync syncs and continues until no stale connection is left.
func (env *testEnv) sync() proxy.Outcome {
	env.t.Helper()
	o, err := env.syncer.Sync()
	for next := o; err == nil && next.FlowsWait > 0; {
		time.Sleep(next.FlowsWait)
		next, err = env.syncer.Sync()
		o.FlowsError = next.FlowsError
	}
	if err := errors.Join(err, o.FlowsError); err != nil {
		env.t.Fatal(err)
	}
	return o
}

// connect connects from the client pod and fails the test if that does not work.
func (env *testEnv) connect(ipv6 bool) netbed.Answer {
	env.t.Helper()
	a, err := env.client.TCP(frontend(ipv6))
	if err != nil {
		env.t.Fatal(err)
	}
	return a
}

// countServers connects n times and counts the connections to each server.
func (env *testEnv) countServers(n int, ipv6 bool) map[string]int {
	env.t.Helper()
	counts := map[string]int{}
	for range n {
		counts[env.connect(ipv6).Server]++
	}
	return counts
}

var serviceName = types.NamespacedName{Namespace: "ns", Name: "svc"}
