package reach

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

var (
	start  = time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	eastID = wire.NewIdentity("east", wire.Key{1})
	east   = Key{Cluster: "east", Family: corev1.IPv4Protocol}
)

// link is how the network treats datagrams and connections to one address.
type link struct {
	loss  float64       // of the datagrams in each direction
	delay time.Duration // of a round trip
	cut   bool
}

// network is a simulated network with beacons behind it. Time passes only in run.
type network struct {
	*testing.T
	machine *Machine
	random  *rand.Rand
	now     time.Time
	// linkTo returns the link to a beacon or, for the zero address, to the endpoints.
	linkTo func(at time.Duration, to netip.Addr) link
	// endpoints is how many endpoints the clusters have.
	endpoints int

	events  events
	changes []Change
	probes  int
	tries   int
	nonces  uint64
}

type event struct {
	at   time.Time
	what func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newNetwork(t *testing.T, seed uint64, linkTo func(at time.Duration, to netip.Addr) link) *network {
	n := &network{T: t, random: rand.New(rand.NewPCG(seed, 1)), now: start, linkTo: linkTo}
	n.machine = &Machine{Random: rand.New(rand.NewPCG(seed, 2)), NewNonce: func() (nonce wire.Nonce) {
		n.nonces++
		binary.BigEndian.PutUint64(nonce[:], n.nonces)
		return nonce
	}}
	n.at(0, func() { n.advance() })
	return n
}

func beaconAt(i int) Beacon {
	return Beacon{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), wire.Port), eastID}
}

// publish makes beacons known, by their numbers.
func (n *network) publish(numbers ...int) {
	target := Target{Key: east}
	for _, i := range numbers {
		target.Beacons = append(target.Beacons, beaconAt(i))
	}
	n.machine.SetTargets(n.now, []Target{target})
}

func (n *network) at(delay time.Duration, what func()) {
	heap.Push(&n.events, event{n.now.Add(delay), what})
}

// run lets time pass.
func (n *network) run(d time.Duration) {
	end := n.now.Add(d)
	for len(n.events) > 0 && !n.events[0].at.After(end) {
		e := heap.Pop(&n.events).(event)
		n.now = e.at
		e.what()
	}
	n.now = end
}

func (n *network) advance() {
	probes, tries, changes, next := n.machine.Advance(n.now)
	n.changes = append(n.changes, changes...)
	n.probes += len(probes)
	n.tries += len(tries)
	for _, p := range probes {
		n.send(p)
	}
	for _, key := range tries {
		for range min(n.endpoints, maxEndpoints) {
			if l, ok := n.passes(netip.Addr{}); ok {
				n.at(l.delay, func() { n.changes = append(n.changes, n.machine.Connected(n.now, key)...) })
			}
		}
	}
	n.at(next.Sub(n.now), n.advance)
}

// passes returns the link to an address, and whether a round trip over it succeeds.
func (n *network) passes(to netip.Addr) (link, bool) {
	l := n.linkTo(n.now.Sub(start), to)
	there, back := n.random.Float64(), n.random.Float64()
	return l, !l.cut && there >= l.loss && back >= l.loss
}

func (n *network) send(p Probe) {
	l, ok := n.passes(p.To.Addr())
	if !ok {
		return
	}
	answer, ok := eastID.Answer(p.Datagram)
	if !ok {
		n.Errorf("a beacon does not answer the probe %x", p.Datagram)
	}
	n.at(l.delay, func() {
		changes, _, _, _ := n.machine.Answered(n.now, p.To, answer)
		n.changes = append(n.changes, changes...)
	})
}

func (n *network) state() objects.Reachability {
	n.Helper()
	list := n.machine.Snapshot(n.now)
	if len(list) != 1 {
		n.Fatalf("states %+v", list)
	}
	return list[0]
}

func (n *network) expect(state objects.ReachState, reason objects.ReachReason) {
	n.Helper()
	if got := n.state(); got.State != state || got.Reason != reason {
		n.Fatalf("after %s: %s (%s), want %s (%s); %s", n.now.Sub(start), got.State, got.Reason, state, reason, n.history())
	}
}

// history lists the changes of state and when they happened.
func (n *network) history() (out string) {
	for _, c := range n.changes {
		out += fmt.Sprintf("%s: %s, %s; ", c.Since.Sub(start), c.State, c.Reason)
	}
	return out
}

// verdicts counts how often the cluster was judged not to be reached.
func (n *network) verdicts() (count int) {
	for _, c := range n.changes {
		if c.State == objects.Unreachable {
			count++
		}
	}
	return count
}

func perfect(time.Duration, netip.Addr) link { return link{delay: time.Millisecond} }

// cutAfter is a network that works until d.
func cutAfter(d time.Duration) func(time.Duration, netip.Addr) link {
	return func(at time.Duration, _ netip.Addr) link { return link{delay: time.Millisecond, cut: at >= d} }
}
