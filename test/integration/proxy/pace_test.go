package proxy_test

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seamark-dev/seamark/internal/proxy"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/netbed"
)

const syncDuration = "seamark_proxy_sync_duration_seconds_"

// changeUntil moves the endpoints of slices between two pods, as fast as the API server allows,
// until done reports that it is enough.
func (c *testCluster) changeUntil(slices []*discoveryv1.EndpointSlice, done func(changes int) bool) {
	c.t.Helper()
	for n := 0; !done(n); n++ {
		err := harness.Parallel(len(slices), len(slices), func(i int) error {
			s := slices[i]
			s.Endpoints[0].Addresses[0] = c.pods[n%2].IP(s.AddressType == discoveryv1.AddressTypeIPv6).String()
			return c.api.Update(c.t.Context(), s)
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// metrics reads some metrics at one time.
func (c *testCluster) metrics(names ...string) []float64 {
	c.t.Helper()
	var values []float64
	harness.Eventually(c.t, "the page of metrics", func() error {
		page, err := c.node.Get(metricsURL)
		values = nil
		for _, name := range names {
			values = append(values, netbed.Metric(page, name))
		}
		return err
	})
	return values
}

// Changes come faster than they can be applied. While the kernel refuses transactions, the delay
// between two attempts doubles all the same. When it accepts them, there is a pause after each sync
// that is as long as the sync was.
func TestChangesWaitForTheirTurn(t *testing.T) {
	c := newCluster(t)
	c.create(service())
	slices := slicesOf("here", c.pods[:1])
	c.createSlices(slices)
	started := time.Now()
	refused := c.StartWithoutCapabilities()
	attempts := func() float64 { return c.metrics("seamark_proxy_sync_errors_total")[0] }
	harness.Eventually(t, "the kernel refuses a transaction", func() error {
		if attempts() == 0 {
			return errors.New("no failure yet")
		}
		return nil
	})
	c.changeUntil(slices, func(n int) bool { return n >= 100 && time.Since(started) > 3*time.Second })
	got := attempts()
	// The delays are 0.2 s, 0.4 s, and so on.
	if possible := 1 + math.Floor(math.Log2(time.Since(started).Seconds()/0.2+1)); got > possible {
		t.Errorf("%v attempts in %s; the back-off allows %v", got, time.Since(started), possible)
	}
	t.Logf("%v attempts in %s", got, time.Since(started))
	refused.SignalAndWait(syscall.SIGKILL)

	c.StartReady()
	read := func() (count, busy float64, at time.Time) {
		values := c.metrics(syncDuration+`count{kind="incremental"}`, syncDuration+`sum{kind="incremental"}`)
		return values[0], values[1], time.Now()
	}
	firstCount, firstBusy, first := read()
	count, busy, at := firstCount, firstBusy, first
	c.changeUntil(slices, func(n int) bool {
		if n%10 == 0 {
			count, busy, at = read()
		}
		return count-firstCount > 30
	})
	// All but the last sync were followed by their pause.
	if share := (busy - firstBusy) / at.Sub(first).Seconds(); share > 0.75 {
		t.Errorf("the proxy was busy for %.0f %% of %s", 100*share, at.Sub(first))
	}
	t.Logf("%v syncs took %.3f s of %s", count-firstCount, busy-firstBusy, at.Sub(first))
}

// timedFlows measures how long the listings of the kernel's tracked connections take.
type timedFlows struct {
	proxy.Flows
	calls       int
	total, last time.Duration
}

func (f *timedFlows) Delete(stale func(ruleset.Flow) bool) (int, error) {
	started := time.Now()
	defer func() {
		f.calls++
		f.last = time.Since(started)
		f.total += f.last
	}()
	return f.Flows.Delete(stale)
}

// Each lost endpoint makes flows stale. However fast endpoints change, the node lists its
// tracked connections for a twentieth of the time at most, and no flow stays where it was.
func TestListingsOfConnectionsAreBounded(t *testing.T) {
	env := newTestEnv(t)
	flows := &timedFlows{Flows: kernel.OpenConntrack(env.node.FD())}
	env.syncer = proxy.NewSyncer(kernel.Open(env.node.FD(), env.masquerade), flows, env.log())
	env.program(service(), slicesOf("here", env.pods[:1])...)
	env.trackConnections(5000)
	flow := env.flowTo("a")
	started, before := time.Now(), *flows
	changes := 0
	for ; changes < 50 || flows.calls-before.calls < 3; changes++ {
		env.set(service(), slicesOf("here", env.pods[(changes+1)%2:][:1])...)
		if o, err := env.syncer.Sync(); err != nil || o.FlowsError != nil {
			t.Fatal(err, o.FlowsError)
		}
		if time.Since(started) > time.Minute {
			t.Fatalf("%d listings in a minute", flows.calls-before.calls)
		}
	}
	took, listing, calls := time.Since(started), flows.total-before.total, flows.calls-before.calls
	if listing-flows.last > took/20 {
		t.Errorf("%d listings took %s of %s", calls, listing, took)
	}
	t.Logf("%d listings for %d changes took %s of %s", calls, changes, listing, took)
	env.program(service(), slicesOf("here", env.pods[:1])...)
	env.swallow(env.pods[0])
	pending := env.connectTo(env.pods[0], false)
	env.set(service(), slicesOf("here", env.pods[2:])...)
	env.sync()
	env.checkFlow("after the last change", flow, "c")
	env.checkReached("after the last change", pending, "c")
}

// trackConnections makes the node track n connections from the client to a pod.
func (env *testEnv) trackConnections(n int) {
	env.t.Helper()
	err := env.client.Do(func() error {
		c, err := net.ListenPacket("udp4", ":0")
		if err != nil {
			return err
		}
		defer c.Close()
		for i := range n {
			to := netip.AddrPortFrom(netip.MustParseAddr("172.30.0.9"), uint16(20000+i)) // beyond the node
			if _, err := c.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(to)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		env.t.Fatal(err)
	}
}
