package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

const (
	namespace   = "bench"
	nodeName    = "node"
	servicePort = 80
	targetPort  = 8080
	workers     = 16
	// movingService is the service that changes: it has one endpoint at a time. loadService is the
	// one that gets connections: its endpoints are pods that answer.
	movingService, loadService = 0, 1
)

// testbed is the control plane and the two nodes that are measured.
type testbed struct {
	dir                string
	size               sizes
	plane              *controlplane.ControlPlane
	api                client.Client
	created            int
	movingPod          int // the pod that the moving service leads to
	seamark, kubeProxy *contender
}

// contender is one of the two compared proxies, on a node of its own.
type contender struct {
	name   string
	node   *netbed.Node
	client *netbed.Pod
	pods   []*netbed.Pod
	vip    func(service int) netip.AddrPort
	cmd    func() *exec.Cmd
	// Names of samples on the page of metrics.
	metrics             string
	fullSum, fullCount  string
	oneSum, oneCount    string
	tables              []string
	process             *exec.Cmd
	exited              <-chan struct{}
	lastSum, lastNumber float64
}

func newTestbed(ctx context.Context, size sizes) (*testbed, error) {
	dir, err := os.MkdirTemp("", "seamark-bench-")
	if err != nil {
		return nil, err
	}
	b := &testbed{dir: dir, size: size}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *testbed) start(ctx context.Context) error {
	kube, err := kubeparts.Kube(ctx, os.Stderr)
	if err != nil {
		return err
	}
	proxy := filepath.Join(b.dir, "seamark-proxy")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", proxy,
		"github.com/seamark-dev/seamark/cmd/seamark-proxy").CombinedOutput(); err != nil {
		return fmt.Errorf("build seamark-proxy: %w\n%s", err, out)
	}
	if b.plane, err = controlplane.Start(ctx, kube, controlplane.Options{Name: "bench", Dir: filepath.Join(b.dir, "plane")}); err != nil {
		return err
	}
	scheme := harness.Scheme()
	if err := aboutv1beta1.AddToScheme(scheme); err != nil {
		return err
	}
	if b.api, err = client.New(b.plane.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if _, err := crds.Install(ctx, b.api, crds.Member); err != nil {
		return err
	}
	if err := b.createNode(ctx); err != nil {
		return err
	}
	if b.seamark, err = b.newContender("seamark-proxy"); err != nil {
		return err
	}
	b.seamark.vip = func(i int) netip.AddrPort { return netip.AddrPortFrom(address(243, 1, i), servicePort) }
	b.seamark.cmd = func() *exec.Cmd {
		return exec.Command(proxy, "--kubeconfig", b.plane.Kubeconfig(), "--node-name", nodeName)
	}
	b.seamark.metrics, b.seamark.tables = "https://127.0.0.1:9441/metrics", []string{"inet seamark"}
	b.seamark.fullSum, b.seamark.fullCount = seamarkMetric("sum", "full"), seamarkMetric("count", "full")
	b.seamark.oneSum, b.seamark.oneCount = seamarkMetric("sum", "incremental"), seamarkMetric("count", "incremental")
	return b.addKubeProxy(kube)
}

func seamarkMetric(what, kind string) string {
	return fmt.Sprintf("seamark_proxy_sync_duration_seconds_%s{kind=%q}", what, kind)
}

// addKubeProxy configures kube-proxy to be as fast as it can: no minimum time between two syncs, no
// periodic ones.
func (b *testbed) addKubeProxy(kube string) (err error) {
	if b.kubeProxy, err = b.newContender("kube-proxy"); err != nil {
		return err
	}
	config := filepath.Join(b.dir, "kube-proxy.yaml")
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clientConnection: {kubeconfig: %s, qps: 500, burst: 1000}
conntrack: {maxPerCore: 0}
detectLocalMode: InterfaceNamePrefix
detectLocal: {interfaceNamePrefix: br}
metricsBindAddress: 127.0.0.1:10249
healthzBindAddress: 127.0.0.1:10256
nftables: {minSyncPeriod: 1ms, syncPeriod: 1h}
`, nodeName, b.plane.Kubeconfig())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	b.kubeProxy.vip = func(i int) netip.AddrPort { return netip.AddrPortFrom(address(10, 96, i+256), servicePort) }
	b.kubeProxy.cmd = func() *exec.Cmd { return exec.Command(kube, "kube-proxy", "--config", config) }
	b.kubeProxy.metrics, b.kubeProxy.tables = "http://127.0.0.1:10249/metrics", []string{"ip kube-proxy", "ip6 kube-proxy"}
	const metric = "kubeproxy_sync_proxy_rules_duration_seconds_"
	b.kubeProxy.oneSum, b.kubeProxy.oneCount = metric+`sum{ip_family="IPv4"}`, metric+`count{ip_family="IPv4"}`
	b.kubeProxy.fullSum, b.kubeProxy.fullCount = b.kubeProxy.oneSum, b.kubeProxy.oneCount
	return nil
}

func (b *testbed) newContender(name string) (*contender, error) {
	s := &contender{name: name}
	var err error
	if s.node, err = netbed.NewNode(); err != nil {
		return nil, err
	}
	if _, err := s.node.Relay(b.plane.Config().Host); err != nil {
		return nil, err
	}
	if s.client, err = s.node.AddPod("client"); err != nil {
		return nil, err
	}
	for i := range b.size.endpoints {
		p, err := s.node.AddPod(fmt.Sprintf("pod%d", i))
		if err != nil {
			return nil, err
		}
		if _, err := p.ServeTCP(p.Name, netip.AddrPortFrom(p.IPv4, targetPort)); err != nil {
			return nil, err
		}
		s.pods = append(s.pods, p)
	}
	return s, nil
}

func (b *testbed) createNode(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := errors.Join(b.api.Create(ctx, node), b.api.Create(ctx, ns)); err != nil {
		return err
	}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: netbed.NodeIPv4.String()}, {Type: corev1.NodeInternalIP, Address: netbed.NodeIPv6.String()},
	}
	return b.api.Status().Update(ctx, node)
}

// createServices creates services up to the given number: a ServiceImport for seamark-proxy, a
// Service for kube-proxy, and one EndpointSlice for both.
func (b *testbed) createServices(ctx context.Context, upTo int) error {
	numbers, errs := make(chan int), make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for i := range numbers {
				if err == nil {
					err = b.createService(ctx, i)
				}
			}
			errs <- err
		}()
	}
	for i := b.created; i < upTo; i++ {
		numbers <- i
	}
	close(numbers)
	var joined error
	for range workers {
		joined = errors.Join(joined, <-errs)
	}
	b.created = upTo
	return joined
}

func (b *testbed) createService(ctx context.Context, i int) error {
	name := fmt.Sprintf("svc-%d", i)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	si := &mcsv1beta1.ServiceImport{ObjectMeta: meta, Spec: mcsv1beta1.ServiceImportSpec{
		Type: mcsv1beta1.ClusterSetIP, IPs: []string{b.seamark.vip(i).Addr().String()},
		Ports: []mcsv1beta1.ServicePort{{Name: "p", Protocol: corev1.ProtocolTCP, Port: servicePort}},
	}}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: b.kubeProxy.vip(i).Addr().String(),
		Ports:     []corev1.ServicePort{{Name: "p", Protocol: corev1.ProtocolTCP, Port: servicePort}},
	}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: name, mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: "bench",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("p"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](targetPort)}},
	}
	for e := range b.size.endpoints {
		// Most pods are on other nodes.
		endpoint := discoveryv1.Endpoint{
			Addresses: []string{address(10, 200, i*b.size.endpoints+e).String()}, NodeName: ptr.To("elsewhere"), Zone: ptr.To("zone-a"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		}
		if i == loadService || i == movingService {
			endpoint = discoveryv1.Endpoint{Addresses: []string{b.seamark.pods[e].IPv4.String()}, NodeName: ptr.To(nodeName)}
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	if i == movingService {
		slice.Endpoints = slice.Endpoints[:1]
	}
	err := errors.Join(b.api.Create(ctx, si), b.api.Create(ctx, slice))
	if !b.size.memoryOnly {
		err = errors.Join(err, b.api.Create(ctx, svc))
	}
	return err
}

// address returns the n-th address from a.b.0.0 on; it may run over into the next b.
func address(a, b byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{a, b + byte(n>>16), byte(n >> 8), byte(n)})
}

func (b *testbed) close() {
	for _, s := range []*contender{b.seamark, b.kubeProxy} {
		if s != nil {
			s.kill()
			_ = s.node.Close()
		}
	}
	if b.plane != nil {
		_ = b.plane.Stop()
	}
	_ = os.RemoveAll(b.dir)
}
