package reach

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

func TestSilenceOfABeaconThatNeverAnsweredProvesNothing(t *testing.T) {
	n := newNetwork(t, 1, cutAfter(0))
	n.publish()
	n.run(time.Minute)
	n.expect(objects.ReachabilityUnknown, objects.ReachNoBeacons)
	n.publish(1, 2, 3)
	n.run(10 * time.Minute)
	n.expect(objects.ReachabilityUnknown, objects.ReachNeverAnswered)
	if len(n.changes) > 0 || n.tries > 0 {
		t.Errorf("%d tries, changes: %s", n.tries, n.history())
	}
	n.machine.SetTargets(n.now, []Target{{Key: east, Refused: true}})
	n.run(time.Second)
	n.expect(objects.ReachabilityUnknown, objects.ReachRefused)
}

// The times from a cut to the verdict, over all phases of probes: between 1.1 s and 1.45 s.
func TestVerdictAfterACut(t *testing.T) {
	for _, beacons := range [][]int{{1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8}} {
		var times []time.Duration
		for seed := range uint64(50) {
			at := 10*time.Second + time.Duration(seed)*29*time.Millisecond
			n := newNetwork(t, seed, cutAfter(at))
			n.endpoints = 4
			n.publish(beacons...)
			n.run(at)
			n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
			n.run(5 * time.Second)
			n.expect(objects.Unreachable, objects.ReachNoAnswer)
			if n.tries == 0 {
				t.Fatal("judged without trying endpoints")
			}
			times = append(times, n.state().Since.Sub(start.Add(at)))
		}
		slices.Sort(times)
		t.Logf("%d beacons: verdict after %s to %s, median %s", len(beacons), times[0], times[len(times)-1], times[len(times)/2])
		if times[0] < time.Second || times[len(times)-1] > 1750*time.Millisecond {
			t.Errorf("%d beacons: verdicts after %s to %s", len(beacons), times[0], times[len(times)-1])
		}
	}
}

func TestMostBeaconsDecide(t *testing.T) {
	for _, c := range []struct {
		name            string
		published, dead []int
		endpoints       int
		state           objects.ReachState
		reason          objects.ReachReason
	}{
		{"one of one", []int{1}, []int{1}, 0, objects.Unreachable, objects.ReachNoAnswer},
		{"one of two", []int{1, 2}, []int{1}, 0, objects.Reachable, objects.ReachBeaconsAnswer},
		{"one of three", []int{1, 2, 3}, []int{1}, 0, objects.Reachable, objects.ReachBeaconsAnswer},
		{"two of three", []int{1, 2, 3}, []int{1, 2}, 0, objects.Unreachable, objects.ReachNoAnswer},
		{"two of three, endpoints answer", []int{1, 2, 3}, []int{1, 2}, 1, objects.Reachable, objects.ReachEndpointsAnswer},
		{"two of four", []int{1, 2, 3, 4}, []int{1, 2}, 0, objects.Reachable, objects.ReachBeaconsAnswer},
		{"three of four", []int{1, 2, 3, 4}, []int{1, 2, 4}, 0, objects.Unreachable, objects.ReachNoAnswer},
		{"all, endpoints answer", []int{1, 2, 3}, []int{1, 2, 3}, 4, objects.Reachable, objects.ReachEndpointsAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, 1, func(at time.Duration, to netip.Addr) link {
				dead := to.IsValid() && slices.ContainsFunc(c.dead, func(i int) bool { return beaconAt(i).Address.Addr() == to })
				return link{delay: time.Millisecond, cut: dead && at > 5*time.Second}
			})
			n.endpoints = c.endpoints
			n.publish(c.published...)
			n.run(time.Minute)
			n.expect(c.state, c.reason)
			if got := n.state(); got.Beacons != len(c.published) || got.Answering != len(c.published)-len(c.dead) {
				t.Errorf("%d of %d beacons answer", got.Answering, got.Beacons)
			}
		})
	}
}

// A beacon behind a firewall from the start has no vote: one of the two that answered is enough.
func TestBeaconsThatNeverAnsweredHaveNoVote(t *testing.T) {
	n := newNetwork(t, 1, func(at time.Duration, to netip.Addr) link {
		return link{delay: time.Millisecond, cut: to != beaconAt(3).Address.Addr() || at > 5*time.Second}
	})
	n.publish(1, 2, 3)
	n.run(5 * time.Second)
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
	n.run(5 * time.Second)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
}

// The port of the beacons is closed in mid-life, and the network is cut later.
func TestEndpointsAcquit(t *testing.T) {
	n := newNetwork(t, 1, func(at time.Duration, to netip.Addr) link {
		return link{delay: time.Millisecond, cut: (to.IsValid() && at > 5*time.Second) || at > 10*time.Minute}
	})
	n.endpoints = 1
	n.publish(1, 2, 3)
	n.run(10 * time.Minute)
	n.expect(objects.Reachable, objects.ReachEndpointsAnswer)
	if n.tries > 601 {
		t.Errorf("endpoints were tried %d times in ten minutes, want once per second", n.tries)
	}
	n.run(5 * time.Second)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
	if n.verdicts() != 1 {
		t.Error(n.history())
	}
}

// A cluster whose beacons stay behind a firewall comes back by its endpoints.
func TestEndpointsBringAClusterBack(t *testing.T) {
	n := newNetwork(t, 1, func(at time.Duration, to netip.Addr) link {
		return link{delay: time.Millisecond, cut: at > 5*time.Second && (to.IsValid() || at < time.Minute)}
	})
	n.endpoints = 2
	n.publish(1, 2, 3)
	n.run(time.Minute)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
	n.run(4 * time.Second)
	n.expect(objects.Unreachable, objects.ReachNotSteady)
	n.run(time.Minute)
	n.expect(objects.Reachable, objects.ReachEndpointsAnswer)
}

// Back after five seconds, longer each time, and less long again after calm.
func TestDamping(t *testing.T) {
	cut := false
	n := newNetwork(t, 1, func(time.Duration, netip.Addr) link { return link{delay: time.Millisecond, cut: cut} })
	n.publish(1, 2, 3)
	n.run(time.Minute)
	outage := func() time.Duration {
		cut = true
		n.run(5 * time.Second)
		n.expect(objects.Unreachable, objects.ReachNoAnswer)
		cut = false
		back := n.now
		n.run(10 * time.Minute)
		n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
		return n.state().Since.Sub(back)
	}
	for _, want := range []time.Duration{5, 5, 5} {
		// Ten minutes passed in between: the doubling was halved twice.
		expectHold(t, outage(), want*time.Second)
	}
	quick := func() time.Duration {
		cut = true
		n.run(5 * time.Second)
		n.expect(objects.Unreachable, objects.ReachNoAnswer)
		cut = false
		back := n.now
		for n.state().State != objects.Reachable {
			n.run(100 * time.Millisecond)
		}
		return n.state().Since.Sub(back)
	}
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		expectHold(t, quick(), want*time.Second)
	}
	n.run(11 * time.Minute)
	expectHold(t, quick(), maxHold/2) // doubled once, halved twice
}

// expectHold checks when a cluster was used again: it must have answered steadily for a time, which
// began with its first answers, up to a probe's interval after the link was back.
func expectHold(t *testing.T, got, want time.Duration) {
	t.Helper()
	if got < want || got > want+probeEvery+2*jitter {
		t.Errorf("back after %s, want %s", got, want)
	}
}

// A link that is up and down for three seconds each is out at once and stays out.
func TestFlappingLink(t *testing.T) {
	n := newNetwork(t, 1, func(at time.Duration, _ netip.Addr) link {
		return link{delay: time.Millisecond, cut: at > 10*time.Second && at < 10*time.Minute && at%(6*time.Second) < 3*time.Second}
	})
	n.publish(1, 2, 3)
	n.run(9 * time.Minute)
	if n.state().State != objects.Unreachable || n.verdicts() != 1 {
		t.Errorf("%d verdicts: %s", n.verdicts(), n.history())
	}
	n.run(2 * time.Minute)
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
}

// Beacons are rescheduled to other addresses: the state stays, and the silence of addresses that
// were withdrawn raises no suspicion.
func TestBeaconsMove(t *testing.T) {
	gone := func(at time.Duration, to netip.Addr) link { // beacons 1 to 3 end after 10 s, others begin to answer at 12 s
		old := to.IsValid() && to.Compare(beaconAt(3).Address.Addr()) <= 0
		return link{delay: time.Millisecond, cut: (old && at > 10*time.Second) || (!old && at < 12*time.Second)}
	}
	n := newNetwork(t, 1, gone)
	n.publish(1, 2, 3)
	n.run(10*time.Second + 900*time.Millisecond)
	if n.tries == 0 {
		t.Fatal("not suspected before the addresses are withdrawn")
	}
	n.publish(4, 5, 6)
	tries := n.tries
	n.run(29 * time.Second)
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
	if n.tries > tries || len(n.changes) != 1 {
		t.Errorf("%d more tries; %s", n.tries-tries, n.history())
	}
	if got := n.state(); got.Answering != 3 {
		t.Errorf("%d beacons answer", got.Answering)
	}
}

func TestWithdrawnBeacons(t *testing.T) {
	n := newNetwork(t, 1, perfect)
	n.publish(1, 2, 3)
	n.run(10 * time.Second)
	n.publish()
	n.run(29 * time.Second)
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
	n.run(2 * time.Second)
	n.expect(objects.ReachabilityUnknown, objects.ReachNoBeacons)
	n.publish(1)
	n.run(time.Second)
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
}

// The verdict about a cluster that is not reached survives a change of its beacons: only answers,
// or the end of all beacons, end it.
func TestVerdictSurvivesNewBeacons(t *testing.T) {
	n := newNetwork(t, 1, cutAfter(5*time.Second))
	n.publish(1, 2, 3)
	n.run(10 * time.Second)
	n.publish(4, 5, 6)
	n.run(10 * time.Minute)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
	n.publish()
	n.run(20 * time.Second)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
	n.run(20 * time.Second)
	n.expect(objects.ReachabilityUnknown, objects.ReachNoBeacons)
}

// A new key makes new beacons: those that have not read it yet prove nothing by their silence.
func TestNewKey(t *testing.T) {
	n := newNetwork(t, 1, perfect)
	n.publish(1)
	n.run(5 * time.Second)
	renewed := beaconAt(1)
	renewed.Identity = wire.NewIdentity("east", wire.Key{2})
	n.machine.SetTargets(n.now, []Target{{Key: east, Beacons: []Beacon{renewed}}})
	for range 100 { // the simulated beacons do not answer probes under this key
		n.now = n.now.Add(100 * time.Millisecond)
		if _, _, changes, _ := n.machine.Advance(n.now); len(changes) > 0 {
			t.Fatalf("%+v", changes)
		}
	}
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
}

func TestHostileAnswers(t *testing.T) {
	m := newNetwork(t, 1, perfect).machine
	other := netip.MustParseAddrPort("10.2.0.1:9446")
	m.SetTargets(start, []Target{{Key: east, Beacons: []Beacon{beaconAt(1), beaconAt(2)}}})
	var probes []Probe
	now := start
	for len(probes) < 2 {
		now = now.Add(probeEvery)
		sent, _, _, _ := m.Advance(now)
		probes = append(probes, sent...)
	}
	first, _ := eastID.Answer(probes[0].Datagram)
	forged := slices.Clone(first)
	forged[len(forged)-1] ^= 1
	for name, c := range map[string]struct {
		from     netip.AddrPort
		datagram []byte
	}{
		"from a stranger":        {other, first},
		"from another beacon":    {probes[1].To, first},
		"from another port":      {netip.AddrPortFrom(probes[0].To.Addr(), 53), first},
		"with a forged tag":      {probes[0].To, forged},
		"the probe itself":       {probes[0].To, probes[0].Datagram},
		"nothing":                {probes[0].To, nil},
		"to no probe":            {probes[0].To, answerOf(wire.Nonce{9, 9})},
		"of another cluster":     {probes[0].To, answerUnder(wire.NewIdentity("west", wire.Key{1}), probes[0])},
		"under the key of other": {probes[0].To, answerUnder(wire.NewIdentity("east", wire.Key{2}), probes[0])},
	} {
		if _, _, _, ok := m.Answered(now, c.from, c.datagram); ok {
			t.Errorf("accepted: %s", name)
		}
	}
	if _, _, latency, ok := m.Answered(now.Add(30*time.Millisecond), probes[0].To, first); !ok || latency < 30*time.Millisecond {
		t.Errorf("the true answer: %t, %s", ok, latency)
	}
	if _, _, _, ok := m.Answered(now, probes[0].To, first); ok {
		t.Error("a replayed answer is accepted")
	}
}

func answerOf(nonce wire.Nonce) []byte {
	answer, _ := eastID.Answer(eastID.Probe(nonce))
	return answer
}

func answerUnder(id wire.Identity, p Probe) []byte {
	nonce := wire.Nonce(p.Datagram[20:36])
	answer, _ := id.Answer(id.Probe(nonce))
	return answer
}

// A process that was stopped for a while finds answers in its sockets only after it has looked at
// the clock: that is no silence of the beacons.
func TestALateProcessIsNoSilence(t *testing.T) {
	n := newNetwork(t, 1, perfect)
	n.publish(1, 2, 3)
	n.run(10 * time.Second)
	m, now := n.machine, n.now
	var unread []Probe
	for len(unread) < 3 { // half a second in which answers arrive and are not read
		probes, _, _, next := m.Advance(now)
		unread = append(unread, probes...)
		now = next
	}
	now = now.Add(3 * time.Second)
	_, tries, changes, _ := m.Advance(now)
	if len(changes) > 0 || len(tries) > 0 {
		t.Fatalf("tries %v, changes %+v", tries, changes)
	}
	for _, p := range unread {
		answer, _ := eastID.Answer(p.Datagram)
		if _, _, _, ok := m.Answered(now, p.To, answer); !ok {
			t.Error("the answer that was read late is not accepted")
		}
	}
}

// While answers are overdue, and before the verdict, a beacon is probed every 100 ms; afterwards as
// seldom as before.
func TestOverdueAnswersAreAskedForFaster(t *testing.T) {
	n := newNetwork(t, 1, cutAfter(10*time.Second))
	n.publish(1)
	n.run(10 * time.Second)
	n.probes = 0
	for n.state().State == objects.Reachable {
		n.run(10 * time.Millisecond)
	}
	if n.probes < 9 || n.probes > 12 {
		t.Errorf("%d probes between the cut and the verdict, want about ten", n.probes)
	}
	n.probes = 0
	n.run(10 * time.Second)
	if n.probes < 19 || n.probes > 21 {
		t.Errorf("%d probes of a cluster that is not reached in 10 s, want 20", n.probes)
	}
}

// Two packets a second to each beacon, spread in time; clusters that are gone are forgotten.
func TestProbesAreFewAndSpread(t *testing.T) {
	n := newNetwork(t, 1, perfect)
	n.publish(1, 2, 3)
	n.run(time.Minute)
	if n.probes < 350 || n.probes > 365 {
		t.Errorf("%d probes of three beacons in a minute", n.probes)
	}
	n.machine.SetTargets(n.now, nil)
	n.probes = 0
	n.run(time.Minute)
	if n.probes > 0 || len(n.machine.Snapshot(n.now)) > 0 {
		t.Errorf("%d probes, states %+v", n.probes, n.machine.Snapshot(n.now))
	}
}

// Families and clusters are judged apart from each other.
func TestFamiliesAreApart(t *testing.T) {
	east6 := Key{Cluster: "east", Family: corev1.IPv6Protocol}
	v6 := Beacon{netip.MustParseAddrPort("[fd00::1]:9446"), eastID}
	n := newNetwork(t, 1, func(at time.Duration, to netip.Addr) link {
		return link{delay: time.Millisecond, cut: to.Is6() && at > 5*time.Second}
	})
	n.machine.SetTargets(n.now, []Target{{Key: east6, Beacons: []Beacon{v6}}, {Key: east, Beacons: []Beacon{beaconAt(1)}}})
	n.run(time.Minute)
	list := n.machine.Snapshot(n.now)
	if len(list) != 2 || list[0].Family != corev1.IPv4Protocol || list[0].State != objects.Reachable || list[1].State != objects.Unreachable {
		t.Errorf("%+v", list)
	}
}

func TestWithLease(t *testing.T) {
	for _, c := range []struct {
		state   objects.ReachState
		expired bool
		want    objects.ReachState
	}{
		{objects.Reachable, false, objects.Reachable},
		{objects.Reachable, true, objects.SilentButServing},
		{objects.Unreachable, true, objects.Unreachable},
		{objects.ReachabilityUnknown, true, objects.ReachabilityUnknown},
	} {
		if got := c.state.WithLease(c.expired); got != c.want {
			t.Errorf("%s, expired %t: %s, want %s", c.state, c.expired, got, c.want)
		}
	}
}

// A process that cannot read for a while must not judge by what it has not read, nor by answers
// that were lost meanwhile because its socket was full. A cut is noticed all the same.
func TestSilenceCountsAsFarAsAnswersWereRead(t *testing.T) {
	const stall, end, cut = 10 * time.Second, 14 * time.Second, 20 * time.Second
	n := newNetwork(t, 1, func(at time.Duration, _ netip.Addr) link {
		return link{delay: time.Millisecond, cut: (at >= stall && at < end) || at >= cut}
	})
	var echo func()
	asked := n.now
	echo = func() {
		at := n.now.Sub(start)
		if at < stall || at >= end {
			n.machine.ReadUntil(n.now, east.Family, asked)
			asked = n.now
		} // else the datagram waits in the socket
		n.at(25*time.Millisecond, echo)
	}
	n.at(0, echo)
	n.publish(1, 2, 3)
	n.run(cut)
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
	if n.verdicts() > 0 {
		t.Error(n.history())
	}
	n.run(1750 * time.Millisecond)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
	n.run(time.Minute)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
}
