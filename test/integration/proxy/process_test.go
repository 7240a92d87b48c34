package proxy_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
	"github.com/seamark-dev/seamark/test/nodeproxy"
)

const (
	metricsURL = "https://127.0.0.1:9441/metrics"
	healthURL  = "http://127.0.0.1:9442/healthz"
)

// testCluster is a testEnv whose table seamark-proxy manages, from the objects of a real API
// server.
type testCluster struct {
	*testEnv
	*nodeproxy.Program
	api       client.Client
	cp        *controlplane.ControlPlane
	namespace string
}

func newCluster(t *testing.T) *testCluster {
	t.Helper()
	c := &testCluster{testEnv: newTestEnv(t), cp: harness.Fresh(t, 1)[0]}
	scheme := harness.Scheme()
	if err := aboutv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.api, err = client.New(c.cp.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if _, err := crds.Install(t.Context(), c.api, crds.Member); err != nil {
		t.Fatal(err)
	}
	c.namespace = harness.Namespace(t, c.cp)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{
		corev1.LabelTopologyZone: c.location.Zone, corev1.LabelTopologyRegion: c.location.Region,
	}}}
	c.create(node)
	for _, ip := range []netip.Addr{netbed.NodeIPv4, netbed.NodeIPv6} { // kube-proxy waits for them
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	if err := c.api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	id := &aboutv1beta1.ClusterProperty{}
	id.Name, id.Spec.Value = aboutv1beta1.PropertyClusterID, c.location.Cluster
	c.create(id)
	c.Program = nodeproxy.Install(t, c.node, c.cp)
	return c
}

func (c *testCluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		if o.GetNamespace() != "" {
			o.SetNamespace(c.namespace)
		}
		if err := c.api.Create(c.t.Context(), o); err != nil {
			c.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (c *testCluster) createSlices(slices []*discoveryv1.EndpointSlice) {
	c.t.Helper()
	for _, s := range slices {
		s.Name = "s" + fmt.Sprintf("%x", s.Name) // an object's name is in lower case
		c.create(s)
	}
}

func TestObjectsReachTheKernel(t *testing.T) {
	c := newCluster(t)
	c.StartReady()
	if _, err := c.node.Get(healthURL); err != nil {
		t.Error(err)
	}
	si := service(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	})
	c.create(si)
	slices := slicesOf("here", c.pods[:1])
	c.createSlices(slices)
	reached := func(what, server string) {
		t.Helper()
		harness.Eventually(t, what, func() error {
			a, err := c.client.TCP(frontend(false))
			if err == nil && a.Server != server {
				err = fmt.Errorf("%s answered", a.Server)
			}
			return err
		})
	}
	reached("the service is programmed", "a")
	for _, s := range slices {
		s.Endpoints[0].Addresses[0] = c.pods[1].IP(s.AddressType == discoveryv1.AddressTypeIPv6).String()
		if err := c.api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	reached("the endpoint has moved", "b")
	// The cluster's id decides whether an endpoint is on this node: cluster "there" has a node of
	// the same name.
	id := &aboutv1beta1.ClusterProperty{}
	if err := c.api.Get(t.Context(), client.ObjectKey{Name: aboutv1beta1.PropertyClusterID}, id); err != nil {
		t.Fatal(err)
	}
	id.Spec.Value = "there"
	if err := c.api.Update(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "endpoints of another cluster are not of this node", func() error {
		if c.isDropped(frontend(false)) {
			return nil
		}
		return fmt.Errorf("still answered")
	})
	if err := c.api.Delete(t.Context(), si); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a removed service leaves nothing", func() error {
		page, err := c.node.Get(metricsURL)
		if err != nil {
			return err
		}
		for _, set := range []string{"vips", "services", "endpoints", "hairpin", "silent"} {
			if n := netbed.Metric(page, fmt.Sprintf("seamark_proxy_programmed_elements{set=%q}", set)); n != 0 {
				return fmt.Errorf("%v elements in %s", n, set)
			}
		}
		return nil
	})
}

// If the proxy is killed under load, the data plane goes on. A restart changes nothing.
func TestKilledUnderLoad(t *testing.T) {
	c := newCluster(t)
	c.create(service())
	c.createSlices(slicesOf("here", c.pods))
	p := c.StartReady()
	ctx, stop := context.WithCancel(t.Context())
	var connections, failures int
	var mu sync.Mutex
	var load []<-chan error
	for range 2 {
		load = append(load, c.client.Go(func() error {
			for ctx.Err() == nil {
				_, err := netbed.DialTCP(frontend(false))
				mu.Lock()
				connections++
				if err != nil {
					failures++
					t.Errorf("connection %d: %v", connections, err)
				}
				mu.Unlock()
			}
			return nil
		}))
	}
	passed := func(more int) {
		t.Helper()
		mu.Lock()
		want := connections + more
		mu.Unlock()
		harness.Eventually(t, "connections go on", func() error {
			mu.Lock()
			defer mu.Unlock()
			if connections < want {
				return fmt.Errorf("%d of %d", connections, want)
			}
			return nil
		})
	}
	passed(200)
	for range 3 {
		p.SignalAndWait(syscall.SIGKILL)
		passed(200)
		p = c.StartReady()
		passed(200)
		page, err := c.node.Get(metricsURL)
		if err != nil {
			t.Fatal(err)
		}
		for _, operation := range []string{"add", "delete"} {
			if n := netbed.Metric(page, fmt.Sprintf("seamark_proxy_changed_elements_total{operation=%q}", operation)); n != 0 {
				t.Errorf("after a restart %v elements were sent (%s)", n, operation)
			}
		}
	}
	stop()
	for _, done := range load {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d connections, %d failed", connections, failures)
}

func TestCleanup(t *testing.T) {
	c := newCluster(t)
	c.create(service())
	c.createSlices(slicesOf("here", c.pods))
	table := func() bool {
		return c.nft("list", "tables") != ""
	}
	c.StartReady().SignalAndWait(syscall.SIGTERM)
	if !table() {
		t.Error("the table is gone without --cleanup-on-exit")
	}
	c.StartReady("--cleanup-on-exit").SignalAndWait(syscall.SIGTERM)
	if table() {
		t.Error("--cleanup-on-exit left the table")
	}
	c.StartReady().SignalAndWait(syscall.SIGKILL)
	if <-c.Start("--cleanup").Exited; table() {
		t.Error("--cleanup left the table")
	}
}
