package proxy_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/test/harness"
)

// neverAllocated returns an address of the clusterset's ranges that no service has.
func neverAllocated(ipv6 bool) netip.AddrPort {
	if ipv6 {
		return netip.MustParseAddrPort("[fd43::9:9:9]:80")
	}
	return netip.MustParseAddrPort("243.9.9.9:80")
}

// Connections to clusterset IPs that the node has not programmed are refused at once. Without the
// ranges they leave through the default route and time out.
func TestUnprogrammedClusterSetIP(t *testing.T) {
	c := newCluster(t)
	ranges := &aboutv1beta1.ClusterProperty{}
	ranges.Name, ranges.Spec.Value = "clusterset-ip-ranges.seamark.dev", "243.0.0.0/8,fd43::/48"
	c.create(ranges)
	p := c.StartReady()
	for name, ipv6 := range families {
		c.checkRefused(name+": never allocated", neverAllocated(ipv6))
	}
	c.createSlices(slicesOf("here", c.pods))
	si := service()
	c.create(si)
	answered := func() {
		t.Helper()
		harness.Eventually(t, "the service is programmed", func() error {
			_, err := c.client.TCP(frontend(false))
			return err
		})
	}
	answered()
	if err := c.api.Delete(t.Context(), si); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a deleted service is refused", func() error {
		if _, err := c.client.TCP(frontend(false)); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("connected: %w", err)
		}
		return nil
	})
	p.SignalAndWait(syscall.SIGKILL)
	c.create(service())
	c.checkRefused("exported while no proxy is running", frontend(false))
	c.Start()
	answered()

	ranges.Spec.Value = "fd43::/48"
	if err := c.api.Update(t.Context(), ranges); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "an address outside the ranges is not refused", func() error {
		if text := c.nft("list", "table", "inet", "seamark"); strings.Contains(text, "243.0.0.0/8") {
			return errors.New("the range is still programmed")
		}
		return nil
	})
	if !c.isDropped(neverAllocated(false)) {
		t.Error("an address outside the ranges was answered")
	}
	if err := client.IgnoreNotFound(c.api.Delete(t.Context(), ranges)); err != nil {
		t.Fatal(err)
	}
}

// A connection that began before the table existed is tracked without translation. Its client must
// reach the service with the next packet that it sends again.
func TestConnectionFromBefore(t *testing.T) {
	env := newTestEnv(t)
	// The kernel tracks connections only where rules need it, as those of kube-proxy do.
	env.nft("add table inet other; add chain inet other c { type filter hook forward priority 0; }; add rule inet other c ct state new accept")
	for name, ipv6 := range families {
		dialed := env.client.Go(func() error {
			_, err := env.client.TCP(frontend(ipv6))
			return err
		})
		env.eventuallyTracked(vip(ipv6))
		env.program(service(), slicesOf("here", env.pods)...)
		if err := <-dialed; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := env.syncer.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// eventuallyTracked waits until the node tracks a connection to an address.
func (env *testEnv) eventuallyTracked(to netip.Addr) {
	env.t.Helper()
	family := "ipv4"
	if to.Is6() {
		family = "ipv6"
	}
	harness.Eventually(env.t, "a connection is tracked", func() error {
		return env.node.Do(func() error {
			out, err := exec.Command("conntrack", "-L", "-f", family, "-d", to.String()).CombinedOutput()
			if err == nil && !strings.Contains(string(out), "dst="+to.String()) {
				err = fmt.Errorf("none: %s", out)
			}
			return err
		})
	})
}
