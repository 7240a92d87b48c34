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

	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/test/harness"
)

// dropped tells that a connection attempt is neither answered nor refused.
func (w *world) dropped(to netip.AddrPort) bool {
	w.t.Helper()
	err := w.client.Do(func() error {
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
	w := newWorld(t)
	for name, ipv6 := range families {
		w.program(service(), slicesOf("here", w.pods)...)
		flows := map[string]func() (string, error){}
		for len(flows) < len(w.pods) { // a flow to each pod
			flow, err := w.client.UDP(frontend(ipv6))
			if err != nil {
				t.Fatal(err)
			}
			defer flow.Close()
			ask := func() (string, error) {
				a, err := flow.Ask()
				return a.Server, err
			}
			server, err := ask()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			flows[server] = ask
		}
		w.program(service(), slicesOf("here", w.pods[1:])...)
		if got := w.servers(100, ipv6); got["a"] > 0 {
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

// A client that sent before the service was known has a tracked connection to nowhere.
func TestUDPFlowFromBefore(t *testing.T) {
	w := newWorld(t)
	flow, err := w.client.UDP(frontend(false))
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	if err := w.client.Do(func() error { return flow.Send() }); err != nil {
		t.Fatal(err)
	}
	w.program(service(), slicesOf("here", w.pods)...)
	harness.Eventually(t, "the flow is answered", func() error {
		_, err := flow.Ask()
		return err
	})
}

func TestTerminatingEndpointsAreTheLastResort(t *testing.T) {
	w := newWorld(t)
	terminating := func(e *discoveryv1.Endpoint) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	}
	w.program(service(), append(slicesOf("here", w.pods[:2], terminating), slicesOf("there", w.pods[2:])...)...)
	if got := w.servers(50, false); got["c"] != 50 {
		t.Errorf("with a ready endpoint: %v", got)
	}
	w.program(service(), slicesOf("here", w.pods[:2], terminating)...)
	if got := w.servers(50, false); got["a"] == 0 || got["b"] == 0 {
		t.Errorf("with terminating endpoints only: %v", got)
	}
}

func TestAffinityHoldsAndExpires(t *testing.T) {
	w := newWorld(t)
	const timeout = 2
	w.program(service(withAffinity(timeout)), slicesOf("here", w.pods)...)
	for name, ipv6 := range families {
		first := w.ask(ipv6).Server
		if got := w.servers(100, ipv6); got[first] != 100 {
			t.Errorf("%s: the client went to %s and then %v", name, first, got)
		}
		// Another client has a choice of its own; that many clients do not agree by chance.
		others := map[string]bool{}
		for _, p := range w.pods {
			a, err := p.TCP(frontend(ipv6))
			if err != nil {
				t.Fatal(err)
			}
			b, err := p.TCP(frontend(ipv6))
			if err != nil || a.Server != b.Server {
				t.Errorf("%s: client %s went to %s, then to %q: %v", name, p.Name, a.Server, b.Server, err)
			}
			others[a.Server] = true
		}
		harness.Eventually(t, name+": after the timeout the client goes elsewhere", func() error {
			time.Sleep((timeout*1000 + 200) * time.Millisecond) // is the subject of the test: nobody may come before
			if server := w.ask(ipv6).Server; server == first {
				return errors.New("still to " + server)
			}
			return nil
		})
	}
}

func TestAffinityMovesWithItsEndpoint(t *testing.T) {
	w := newWorld(t)
	w.program(service(withAffinity(3600)), slicesOf("here", w.pods)...)
	for name, ipv6 := range families {
		left := w.pods
		for len(left) > 1 {
			server := w.ask(ipv6).Server
			for i, p := range left {
				if p.Name == server {
					left = append(append(left[:0:0], left[:i]...), left[i+1:]...)
				}
			}
			w.program(service(withAffinity(3600)), slicesOf("here", left)...)
			next := w.ask(ipv6).Server
			if next == server {
				t.Fatalf("%s: the client still goes to %s, which is gone", name, server)
			}
			if got := w.servers(30, ipv6); got[next] != 30 {
				t.Errorf("%s: after moving to %s the client went to %v", name, next, got)
			}
		}
		w.program(service(withAffinity(3600)), slicesOf("here", w.pods)...)
	}
}

// A restart finds everything in place: it sends nothing, and clients keep their affinity.
func TestRestartChangesNothing(t *testing.T) {
	w := newWorld(t)
	slices := slicesOf("here", w.pods)
	w.program(service(withAffinity(3600)), slices...)
	server := w.ask(false).Server
	w.syncer = w.newSyncer()
	o := w.program(service(withAffinity(3600)), slices...)
	if !o.Full || o.Added+o.Deleted > 0 {
		t.Errorf("the first sync after a restart did %+v", o)
	}
	if got := w.servers(30, false); got[server] != 30 {
		t.Errorf("the client was with %s and is now with %v", server, got)
	}
	w.syncer = w.newSyncer()
	o = w.program(service(withAffinity(3600)), slicesOf("here", w.pods[1:])...)
	if o.Added+o.Deleted == 0 || w.servers(30, false)["a"] > 0 {
		t.Errorf("what changed while nobody was there was not found: %+v", o)
	}
}

// What others do to the table is put back at the next full sync; a transaction that meets it leads to one.
func TestSomebodyElseChangesTheTable(t *testing.T) {
	w := newWorld(t)
	w.program(service(), slicesOf("here", w.pods)...)
	for _, command := range []string{
		"delete table inet seamark", "flush chain inet seamark prerouting", "flush map inet seamark endpoints4", "flush map inet seamark services4",
	} {
		w.nft(strings.Fields(command)...)
		w.syncer.RequireFullSync()
		if _, err := w.syncer.Sync(); err != nil {
			t.Fatalf("after %q: %v", command, err)
		}
		w.ask(false)
	}
	w.nft("flush", "map", "inet", "seamark", "endpoints4")
	w.syncer.Set(name, time.Unix(1, 0), model.Build(service(), slicesOf("here", w.pods[1:]), w.here))
	if _, err := w.syncer.Sync(); err == nil {
		t.Fatal("a transaction that deletes what is not there was accepted")
	}
	if _, err := w.syncer.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := w.servers(30, false); got["a"] > 0 {
		t.Errorf("after the full sync: %v", got)
	}
}

func (w *world) nft(args ...string) string {
	w.t.Helper()
	var out []byte
	err := w.node.Do(func() (err error) {
		out, err = exec.Command("nft", args...).CombinedOutput()
		return err
	})
	if err != nil {
		w.t.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return string(out)
}

// People list the ruleset with nft; what we make must not be more than it can take.
func TestListedByNft(t *testing.T) {
	w := newWorld(t)
	w.program(service(withAffinity(10)), slicesOf("here", w.pods)...)
	w.ask(false)
	if text := w.nft("list", "ruleset"); !strings.Contains(text, "chain keep4-3-10s") || !strings.Contains(text, vip6.String()) {
		t.Errorf("nft lists:\n%s", text)
	}
}

func TestRemove(t *testing.T) {
	w := newWorld(t)
	w.program(service(), slicesOf("here", w.pods)...)
	for range 2 { // the second time there is nothing to remove
		if err := w.syncer.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if text := w.nft("list", "ruleset"); strings.TrimSpace(text) != "" {
		t.Errorf("left behind:\n%s", text)
	}
}
