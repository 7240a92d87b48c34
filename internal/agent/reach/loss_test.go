package reach

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seamark-dev/seamark/internal/objects"
)

// bad is a network that becomes bad at a moment: that is harder than one that always was, because
// nothing is known of its delay.
func bad(from time.Duration, l link) func(time.Duration, netip.Addr) link {
	return func(at time.Duration, _ netip.Addr) link {
		if at < from {
			return link{delay: time.Millisecond}
		}
		return l
	}
}

// Loss and delay lead to no verdict, also when they appear suddenly. With 3,000 seeds, and half a
// minute to a minute of a bad network each, there was no verdict in any case but the last one: if
// round trips take a second suddenly and a fifth of them is lost, 28 of 3,000 changes led to one.
// The seeds here are fixed, so this test does not fail by chance.
func TestLossAndDelayChangeNothing(t *testing.T) {
	const runs = 20
	for _, c := range []struct {
		name      string
		link      link
		beacons   []int
		endpoints int
		verdicts  int // at most
	}{
		{"loss of 10 % each way", link{loss: 0.1, delay: time.Millisecond}, []int{1, 2, 3}, 0, 0},
		{"round trips of 500 ms", link{delay: 500 * time.Millisecond}, []int{1, 2, 3}, 0, 0},
		{"round trips of 500 ms, one beacon", link{delay: 500 * time.Millisecond}, []int{1}, 0, 0},
		{"500 ms each way", link{delay: time.Second}, []int{1, 2, 3}, 0, 0},
		{"loss and round trips of 500 ms", link{loss: 0.1, delay: 500 * time.Millisecond}, []int{1, 2, 3}, 0, 0},
		{"the same, endpoints", link{loss: 0.1, delay: 500 * time.Millisecond}, []int{1, 2, 3}, 4, 0},
		{"the same, two beacons", link{loss: 0.1, delay: 500 * time.Millisecond}, []int{1, 2}, 0, 0},
		{"the same, one beacon and endpoints", link{loss: 0.1, delay: 500 * time.Millisecond}, []int{1}, 4, 0},
		{"loss and 500 ms each way, endpoints", link{loss: 0.1, delay: time.Second}, []int{1, 2, 3}, 4, 1},
	} {
		verdicts := 0
		for seed := range uint64(runs) {
			n := newNetwork(t, seed, bad(10*time.Second+time.Duration(seed)*11*time.Millisecond, c.link))
			n.endpoints = c.endpoints
			n.publish(c.beacons...)
			n.run(time.Minute)
			verdicts += n.verdicts()
		}
		if verdicts > c.verdicts {
			t.Errorf("%s: %d verdicts in %d runs", c.name, verdicts, runs)
		}
	}
}

// Whatever the network does, and however the list of beacons changes: states follow each other in
// the only possible order, and a cluster is not used again before it was steady.
func TestPropertiesOfStates(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		links := rapid.SliceOfN(rapid.SampledFrom([]link{
			{delay: time.Millisecond}, {delay: time.Millisecond}, {cut: true},
			{loss: 0.1, delay: 500 * time.Millisecond}, {loss: 0.5, delay: time.Second},
		}), 1, 20).Draw(r, "links")
		n := newNetwork(t, rapid.Uint64().Draw(r, "seed"), func(at time.Duration, _ netip.Addr) link {
			return links[min(int(at/(7*time.Second)), len(links)-1)]
		})
		n.endpoints = rapid.IntRange(0, 4).Draw(r, "endpoints")
		for range len(links) + 3 {
			n.publish(rapid.SliceOfNDistinct(rapid.IntRange(1, 8), 0, 4, rapid.ID[int]).Draw(r, "beacons")...)
			n.run(7 * time.Second)
		}
		last := objects.ReachabilityUnknown
		for _, c := range n.changes {
			if c.Before != last || c.State == last {
				r.Fatalf("%s follows %s: %s", c.State, last, n.history())
			}
			if c.Before == objects.ReachabilityUnknown && c.State == objects.Unreachable {
				r.Fatalf("judged without an answer: %s", n.history())
			}
			if c.Before == objects.Unreachable && c.State == objects.Reachable && c.Lasted < firstHold {
				r.Fatalf("back after %s: %s", c.Lasted, n.history())
			}
			last = c.State
		}
	})
}
