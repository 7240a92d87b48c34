package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// history is a seed with the actions that it chooses, or some of them.
type history struct {
	seed    uint64
	actions []action
	// deadAtEnd is true if members that died stay dead at the end.
	deadAtEnd bool
}

// newHistory chooses the actions of a seed.
func newHistory(seed uint64) history {
	rng := newRand(seed)
	h := history{seed: seed, deadAtEnd: rng.IntN(3) == 0}
	for range 3 + rng.IntN(20) {
		h.actions = append(h.actions, action{
			name: actNames[rng.IntN(len(actNames))], member: rng.IntN(12), service: rng.IntN(12), random: rng.Uint64(),
		})
	}
	return h
}

// size is how much happened in a history.
type size struct {
	histories, members, actions, faults, processes, deliveries, reconciles, writes int
	simulated                                                                      time.Duration
}

func (s *size) add(o size) {
	s.histories++
	s.members += o.members
	s.actions += o.actions
	s.faults += o.faults
	s.processes += o.processes
	s.deliveries += o.deliveries
	s.reconciles += o.reconciles
	s.writes += o.writes
	s.simulated += o.simulated
}

func (s *size) String() string {
	n := float64(max(s.histories, 1))
	return fmt.Sprintf("%.2f members, %.1f actions (%.1f of them faults), %.1f starts of agents, %.0f deliveries, %.0f reconciles, %.0f writes, "+
		"%.0f simulated seconds",
		float64(s.members)/n, float64(s.actions)/n, float64(s.faults)/n, float64(s.processes)/n, float64(s.deliveries)/n, float64(s.reconciles)/n,
		float64(s.writes)/n, s.simulated.Seconds()/n)
}

// outcome is what a history came to.
type outcome struct {
	failure error    // the rule that was broken; nil if none was
	trace   []string // what happened, if that was asked for
	size    size
}

// play plays a history. With tracing it records what happens, and checks that no agent changes
// what it reads.
func (h history) play(t *testing.T, tracing bool) (out outcome) {
	synctest.Test(t, func(*testing.T) {
		w := newWorld(h.seed)
		if tracing {
			w.tracing = true
			w.detectChanges()
		}
		defer func() {
			if err := w.changed(); err != nil {
				t.Error(err)
			}
			w.size.members, w.size.processes, w.size.writes, w.size.simulated = len(w.members), w.processes, w.writes, time.Since(w.started)
			out = outcome{failure: w.failure, trace: w.trace, size: w.size}
		}()
		defer w.stopAll()
		h.playIn(w)
	})
	return out
}

func (h history) playIn(w *world) {
	w.begin()
	w.eagerness = []int{1, 3, 6, 20}[w.rng.IntN(4)]
	for _, a := range h.actions {
		if w.failure != nil {
			return
		}
		w.perform(a)
	}
	if w.failure == nil {
		w.rng, w.eagerness = newRand(h.seed+1), 6
		w.end(h.deadAtEnd)
	}
}

// begin starts all agents and exports the calm services and some others, before or after that.
func (w *world) begin() {
	before := w.rng.IntN(2) == 0
	if before {
		w.exportSome(func() {})
	}
	for _, m := range w.members {
		m.start()
	}
	w.run(3 * time.Second)
	if !before {
		w.exportSome(func() {
			if w.rng.IntN(3) == 0 {
				w.run(time.Second)
			}
		})
	}
	w.run(10 * time.Second)
	w.checkConverged()
	w.checker.beginning = time.Now()
	for _, m := range w.members {
		for _, service := range w.services {
			w.checker.touched[place{m, service}] = true
		}
	}
	w.checker.check()
}

// exportSome exports the calm services and some others. It calls between after each.
func (w *world) exportSome(between func()) {
	for i, service := range w.services {
		w.broker.backUp() // lacks the services that follow
		for _, m := range w.members {
			if w.rng.IntN(3) > 0 || i < w.calm && m.index == 0 {
				doExport(w, m, service, w.rng.Uint64())
				between()
				w.sleep(time.Duration(w.rng.IntN(2)) * time.Second)
			}
		}
	}
}

// longestWait is how long after the end of all faults an agent may wait for others at most.
const longestWait = 15 * time.Minute

// end heals all faults and checks that the members agree, and that nothing is written then.
func (w *world) end(deadAtEnd bool) {
	w.heal(!deadAtEnd)
	healed := time.Now()
	w.run(verdictTime)
	if w.hasDead() {
		w.run(livingDecideAfter)
	}
	for quiet := 0; quiet < 2 && w.failure == nil; {
		quiet++
		if !w.idle() {
			quiet = 0
		}
		w.run(5 * time.Second)
		if time.Since(healed) > longestWait {
			w.fail(ruleConverge, "the agents still wait for something %v after all faults ended", longestWait)
		}
	}
	w.checkConverged()
	if w.failure != nil {
		return
	}
	w.logf("rest")
	writes := w.writes
	w.run(20 * time.Second)
	if w.writes != writes {
		w.fail(ruleRest, "%d writes although nothing changed", w.writes-writes)
	}
	w.eagerness = together // the agents' first lists arrive together
	for _, m := range w.members {
		if m.deadSince.IsZero() && w.failure == nil {
			w.logf("restart %s at rest", m.id)
			m.restart()
		}
	}
	w.run(20 * time.Second)
	if w.writes != writes {
		w.fail(ruleRestart, "%d writes after restarts although nothing changed", w.writes-writes)
	}
	w.checkConverged()
}

// shrink drops actions as long as the same rule is broken without them.
func (h history) shrink(t *testing.T, broken rule) history {
	for again := true; again; {
		again = false
		for i := len(h.actions) - 1; i >= 0; i-- {
			shorter := h
			shorter.actions = append(append([]action{}, h.actions[:i]...), h.actions[i+1:]...)
			if brokenRule(shorter.play(t, false).failure) == broken {
				h, again = shorter, true
			}
		}
	}
	return h
}

// report describes a failing history.
func (h history) report(failure error, trace []string) string {
	var names []string
	for _, a := range h.actions {
		names = append(names, a.String())
	}
	const lines = 150
	if len(trace) > lines {
		trace = append([]string{"…"}, trace[len(trace)-lines:]...)
	}
	return fmt.Sprintf("%v\nactions left after shrinking: %s\nwhat happened last:\n%s\nreplay: go test ./test/sim -run TestHistories -sim.seed=%d",
		failure, strings.Join(names, ", "), strings.Join(trace, "\n"), h.seed)
}
