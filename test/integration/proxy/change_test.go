package proxy_test

import (
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/test/harness"
)

// isDropped reports whether a connection attempt is neither answered nor refused.
func (env *testEnv) isDropped(to netip.AddrPort) bool {
	env.t.Helper()
	err := env.client.Do(func() error {
		c, err := net.DialTimeout("tcp", to.String(), 500*time.Millisecond)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestRemovedEndpointGetsNothing(t *testing.T) {
	env := newTestEnv(t)
	for name, ipv6 := range families {
		env.program(service(), slicesOf("here", env.pods)...)
		flows := map[string]func() (string, error){}
		for len(flows) < len(env.pods) { // a flow to each pod
			flow, err := env.client.UDP(frontend(ipv6))
			if err != nil {
				t.Fatal(err)
			}
			defer flow.Close()
			ask := func() (string, error) {
				a, err := flow.Exchange()
				return a.Server, err
			}
			server, err := ask()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			flows[server] = ask
		}
		env.program(service(), slicesOf("here", env.pods[1:])...)
		if got := env.countServers(100, ipv6); got["a"] > 0 {
			t.Errorf("%s: the removed endpoint got %d of 100 connections", name, got["a"])
		}
		for was, ask := range flows {
			server, err := ask()
			if err != nil || server == "a" || was != "a" && server != was {
				t.Errorf("%s: the UDP flow to %s leads to %q: %v", name, was, server, err)
			}
		}
	}
}

// A client that sent packets before the service was programmed has a tracked connection without
// translation.
func TestUDPFlowFromBefore(t *testing.T) {
	env := newTestEnv(t)
	flow, err := env.client.UDP(frontend(false))
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	if err := env.client.Do(func() error { return flow.Send() }); err != nil {
		t.Fatal(err)
	}
	env.program(service(), slicesOf("here", env.pods)...)
	harness.Eventually(t, "the flow is answered", func() error {
		_, err := flow.Exchange()
		return err
	})
}

func TestTerminatingEndpointsAreTheLastResort(t *testing.T) {
	env := newTestEnv(t)
	terminating := func(e *discoveryv1.Endpoint) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	}
	env.program(service(), append(slicesOf("here", env.pods[:2], terminating), slicesOf("there", env.pods[2:])...)...)
	if got := env.countServers(50, false); got["c"] != 50 {
		t.Errorf("with a ready endpoint: %v", got)
	}
	env.program(service(), slicesOf("here", env.pods[:2], terminating)...)
	if got := env.countServers(50, false); got["a"] == 0 || got["b"] == 0 {
		t.Errorf("with terminating endpoints only: %v", got)
	}
}

func TestAffinityHoldsAndExpires(t *testing.T) {
	env := newTestEnv(t)
	const timeout = 2
	env.program(service(withAffinity(timeout)), slicesOf("here", env.pods)...)
	for name, ipv6 := range families {
		first := env.connect(ipv6).Server
		if got := env.countServers(100, ipv6); got[first] != 100 {
			t.Errorf("%s: the client went to %s and then %v", name, first, got)
		}
		// Every other client stays where it went first, too.
		for _, p := range env.pods {
			a, err := p.TCP(frontend(ipv6))
			if err != nil {
				t.Fatal(err)
			}
			b, err := p.TCP(frontend(ipv6))
			if err != nil || a.Server != b.Server {
				t.Errorf("%s: client %s went to %s, then to %q: %v", name, p.Name, a.Server, b.Server, err)
			}
		}
		harness.Eventually(t, name+": after the timeout the client goes elsewhere", func() error {
			time.Sleep((timeout*1000 + 200) * time.Millisecond) // the subject of the test: a connection before would restart the timeout
			if server := env.connect(ipv6).Server; server == first {
				return errors.New("still to " + server)
			}
			return nil
		})
	}
}

func TestAffinityMovesWithItsEndpoint(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(withAffinity(3600)), slicesOf("here", env.pods)...)
	for name, ipv6 := range families {
		left := env.pods
		for len(left) > 1 {
			server := env.connect(ipv6).Server
			for i, p := range left {
				if p.Name == server {
					left = append(append(left[:0:0], left[:i]...), left[i+1:]...)
				}
			}
			env.program(service(withAffinity(3600)), slicesOf("here", left)...)
			next := env.connect(ipv6).Server
			if next == server {
				t.Fatalf("%s: the client still goes to %s, which is gone", name, server)
			}
			if got := env.countServers(30, ipv6); got[next] != 30 {
				t.Errorf("%s: after moving to %s the client went to %v", name, next, got)
			}
		}
		env.program(service(withAffinity(3600)), slicesOf("here", env.pods)...)
	}
}

// A restart finds everything in place: it sends no elements, and clients keep their affinity.
func TestRestartChangesNothing(t *testing.T) {
	env := newTestEnv(t)
	slices := slicesOf("here", env.pods)
	env.program(service(withAffinity(3600)), slices...)
	server := env.connect(false).Server
	env.syncer = env.newSyncer()
	o := env.program(service(withAffinity(3600)), slices...)
	if !o.Full || o.Added+o.Deleted > 0 {
		t.Errorf("the first sync after a restart did %+v", o)
	}
	if got := env.countServers(30, false); got[server] != 30 {
		t.Errorf("the client was with %s and is now with %v", server, got)
	}
	env.syncer = env.newSyncer()
	o = env.program(service(withAffinity(3600)), slicesOf("here", env.pods[1:])...)
	if o.Added+o.Deleted == 0 || env.countServers(30, false)["a"] > 0 {
		t.Errorf("a change while no proxy was running was not found: %+v", o)
	}
}

// The next full sync restores what other programs changed in the table. A transaction that fails
// because of such a change leads to a full sync.
func TestTableChangedByAnotherProgram(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods)...)
	for _, command := range []string{
		"delete table inet seamark", "flush chain inet seamark prerouting", "flush map inet seamark endpoints4",
		"flush map inet seamark services4",
	} {
		env.nft(strings.Fields(command)...)
		env.syncer.RequireFullSync()
		if _, err := env.syncer.Sync(); err != nil {
			t.Fatalf("after %q: %v", command, err)
		}
		env.connect(false)
	}
	env.nft("flush", "map", "inet", "seamark", "endpoints4")
	env.syncer.Set(serviceName, time.Unix(1, 0), model.Build(service(), slicesOf("here", env.pods[1:]), env.location))
	if _, err := env.syncer.Sync(); err == nil {
		t.Fatal("a transaction that deletes what is not there was accepted")
	}
	if _, err := env.syncer.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := env.countServers(30, false); got["a"] > 0 {
		t.Errorf("after the full sync: %v", got)
	}
}

func (env *testEnv) nft(args ...string) string {
	env.t.Helper()
	var out []byte
	err := env.node.Do(func() (err error) {
		out, err = exec.Command("nft", args...).CombinedOutput()
		return err
	})
	if err != nil {
		env.t.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return string(out)
}

// Users list the ruleset with nft, which must be able to parse our rules.
func TestListedByNft(t *testing.T) {
	env := newTestEnv(t)
	for _, env.masquerade = range []kernel.Masquerade{kernel.MasqueradeNone, kernel.MasqueradeHost, kernel.MasqueradeAll} {
		env.syncer = env.newSyncer()
		env.syncer.SetRanges(clusterSetRanges)
		env.program(service(withAffinity(10)), slicesOf("here", env.pods)...)
		env.connect(false)
		text := env.nft("list", "table", "inet", "seamark")
		for _, want := range []string{
			"chain keep4-3-10s", vip6.String(), "ip daddr 243.0.0.0/8 goto refuse", "masquerade fully-random",
			// Elements name their service.
			"243.1.2.3 comment \"ns/svc\"", "243.1.2.3 . tcp . 80 comment \"ns/svc\" : ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("nft does not list %q:\n%s", want, text)
			}
		}
	}
}

func TestRemove(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods)...)
	for range 2 { // the second time there is nothing to remove
		if err := env.syncer.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if text := env.nft("list", "ruleset"); strings.TrimSpace(text) != "" {
		t.Errorf("left behind:\n%s", text)
	}
}
