package reach

import (
	"net/netip"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// yesterday is when an earlier process found east unreachable.
var yesterday = start.Add(-24 * time.Hour)

// restored is a network to east that works after an hour, for a process that starts now.
func restored(t *testing.T) *network {
	t.Helper()
	n := newNetwork(t, 1, func(at time.Duration, _ netip.Addr) link { return link{delay: time.Millisecond, cut: at < time.Hour} })
	n.machine.Restore(reachable.Unreachables{east: yesterday})
	return n
}

func TestRestoredVerdictLastsUntilTheClusterAnswersSteadily(t *testing.T) {
	n := restored(t)
	n.publish(1, 2)
	n.run(time.Hour)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
	if got := n.state().Since; !got.Equal(yesterday) || len(n.changes) > 0 {
		t.Errorf("unreachable since %s, want %s; %s", got, yesterday, n.history())
	}
	n.run(firstHold - 100*time.Millisecond)
	n.expect(objects.Unreachable, objects.ReachNotSteady)
	n.run(2 * time.Second)
	n.expect(objects.Reachable, objects.ReachBeaconsAnswer)
}

// Time before the targets are known is no time in which beacons were missing.
func TestRestoredVerdictWaitsForTheTargets(t *testing.T) {
	n := restored(t)
	n.run(10 * time.Minute)
	n.publish(1)
	n.run(withoutBeacons + time.Second)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
}

func TestRestoredVerdictOfAClusterWithoutBeaconsEnds(t *testing.T) {
	n := restored(t)
	n.publish()
	n.run(withoutBeacons - time.Second)
	n.expect(objects.Unreachable, objects.ReachNoAnswer)
	n.run(2 * time.Second)
	n.expect(objects.ReachabilityUnknown, objects.ReachNoBeacons)
}

// A cluster from which nothing is imported any more is forgotten, but not at once.
func TestVerdictAboutAClusterThatIsNoTargetEnds(t *testing.T) {
	for name, n := range map[string]*network{"restored": restored(t), "judged here": newNetwork(t, 1, cutAfter(time.Second))} {
		t.Run(name, func(t *testing.T) {
			n.publish(1)
			n.run(10 * time.Second)
			n.expect(objects.Unreachable, objects.ReachNoAnswer)
			changes := len(n.changes)
			n.machine.SetTargets(n.now, nil)
			n.run(withoutBeacons / 2)
			n.expect(objects.Unreachable, objects.ReachNoAnswer)
			n.publish(1)
			n.run(withoutBeacons)
			n.expect(objects.Unreachable, objects.ReachNoAnswer)
			for range withoutBeacons/time.Second + 2 {
				n.machine.SetTargets(n.now, nil)
				n.run(time.Second)
			}
			if got := n.machine.Snapshot(n.now); len(got) > 0 {
				t.Errorf("still known: %+v", got)
			}
			if got := n.changes[changes:]; len(got) != 1 || got[0].State != objects.ReachabilityUnknown {
				t.Errorf("changes %+v, want one to unknown", got)
			}
		})
	}
}

func TestUndecided(t *testing.T) {
	n := newNetwork(t, 1, cutAfter(0))
	if !n.machine.Undecided(n.now, "east") {
		t.Error("decided before the targets are known")
	}
	n.publish(1)
	n.run(time.Second)
	if !n.machine.Undecided(n.now, "east") || n.machine.Undecided(n.now, "north") {
		t.Error("east has not had the time to answer; north is not probed")
	}
	n.run(time.Second)
	if n.machine.Undecided(n.now, "east") {
		t.Error("undecided after two seconds of silence")
	}
	answering := newNetwork(t, 1, perfect)
	answering.publish(1)
	answering.run(600 * time.Millisecond)
	if answering.machine.Undecided(answering.now, "east") {
		t.Error("undecided although it answers")
	}
	again := restored(t)
	again.publish(1)
	if again.machine.Undecided(again.now, "east") {
		t.Error("a restored verdict is a decision")
	}
}
