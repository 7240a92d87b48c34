package reach

import (
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

const (
	// tryEvery is how often endpoints are tried while the beacons of a reached cluster are silent,
	// retryEvery how often those of a cluster that is not reached.
	tryEvery   = time.Second
	retryEvery = 2 * time.Second
	// connectHolds is how long a connection to an endpoint proves that the cluster is reached: two
	// tries in a row must fail.
	connectHolds = 3100 * time.Millisecond
	// withoutBeacons is how long a state is kept while no beacon can confirm it: beacons that are
	// rescheduled come back at other addresses.
	withoutBeacons = 30 * time.Second
	// firstAnswer is how long a cluster that was not probed before has to answer: three probes.
	firstAnswer = 1500 * time.Millisecond

	// A cluster that was not reached is used again after it answered steadily for firstHold. Each
	// further verdict doubles that, up to maxHold; each calmPeriod without one halves it.
	firstHold  = 5 * time.Second
	maxHold    = 5 * time.Minute
	calmPeriod = 5 * time.Minute
)

// Key names what is judged: a cluster in one address family.
type Key = reachable.Key

// target is a cluster that is probed.
type target struct {
	Key
	beacons []*beacon
	refused bool // all its beacons were refused

	state  objects.ReachState
	reason objects.ReachReason
	since  time.Time

	created   time.Time // when it was first probed; zero if it was unreachable for an earlier process
	tryAt     time.Time // when endpoints are tried next; zero while there is no need
	connected time.Time // when an endpoint last accepted a connection since the beacons fell silent
	steady    time.Time // since when a cluster that was not reached answers; zero if it does not
	unproven  time.Time // since when no beacon can confirm the state; zero if one can
	hold      time.Duration
}

// evidence is what the beacons of a target say.
type evidence struct{ answered, overdue, suspect, dead int }

// most reports whether n is most of the beacons that ever answered.
func (e evidence) most(n int) bool { return e.answered > 0 && 2*n > e.answered }

// evidence returns what the beacons say. Answers that arrived after read may not have been read
// yet.
func (t *target) evidence(now, read time.Time) (e evidence) {
	for _, b := range t.beacons {
		if !b.answered {
			continue // a firewall may be in the way
		}
		e.answered++
		e.overdue += oneIf(b.overdue(now))
		e.suspect += oneIf(b.suspect(read))
		e.dead += oneIf(b.dead(read))
	}
	return e
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// forgive shortens the silence of the beacons. It leaves a cluster alone that is not reached: that
// one has to answer.
func (t *target) forgive(now time.Time, late time.Duration) {
	if t.state == objects.Unreachable {
		return
	}
	for _, b := range t.beacons {
		if !b.silence.IsZero() {
			b.silence = b.silence.Add(min(late, now.Sub(b.silence)))
		}
	}
}

// judge updates the state from what is known now. Answers that arrived after read may not have been
// read yet. It reports whether endpoints are to be tried.
func (t *target) judge(now, read time.Time) (try bool) {
	e := t.evidence(now, read)
	t.noteProof(now, e)
	switch t.state {
	case objects.Reachable:
		return t.judgeReachable(now, e)
	case objects.Unreachable:
		return t.judgeUnreachable(now, e)
	}
	if e.answered > 0 && !e.most(e.dead) {
		t.set(now, objects.Reachable, objects.ReachBeaconsAnswer)
		return false
	}
	t.reason = t.whyUnknown()
	return false
}

// noteProof records since when no beacon can confirm the state.
func (t *target) noteProof(now time.Time, e evidence) {
	// A cluster that is not reached cannot make new beacons known by answers. While it publishes some,
	// the verdict stands.
	if e.answered > 0 || (t.state == objects.Unreachable && len(t.beacons) > 0) {
		t.unproven = time.Time{}
	} else if t.unproven.IsZero() {
		t.unproven = now
	}
}

func (t *target) judgeReachable(now time.Time, e evidence) (try bool) {
	switch {
	case !t.unproven.IsZero() && now.Sub(t.unproven) >= withoutBeacons:
		t.set(now, objects.ReachabilityUnknown, t.whyUnknown())
		return false
	case !e.most(e.suspect):
		t.tryAt, t.connected = time.Time{}, time.Time{}
		t.reason = objects.ReachBeaconsAnswer
		return false
	case e.most(e.dead) && !t.endpointsAnswer(now):
		t.lengthenHold(now)
		t.set(now, objects.Unreachable, objects.ReachNoAnswer)
		return t.tryDue(now, retryEvery)
	case e.most(e.dead):
		t.reason = objects.ReachEndpointsAnswer
	}
	return t.tryDue(now, tryEvery)
}

func (t *target) judgeUnreachable(now time.Time, e evidence) (try bool) {
	beacons := e.answered > 0 && !e.most(e.dead)
	switch {
	case !beacons && !t.endpointsAnswer(now):
		t.steady, t.reason = time.Time{}, objects.ReachNoAnswer
		if !t.unproven.IsZero() && now.Sub(t.unproven) >= withoutBeacons {
			t.set(now, objects.ReachabilityUnknown, t.whyUnknown())
			return false
		}
	case t.steady.IsZero():
		t.steady, t.reason = now, objects.ReachNotSteady
	case now.Sub(t.steady) >= t.hold:
		t.set(now, objects.Reachable, objects.ReachBeaconsAnswer)
		if !beacons {
			t.reason = objects.ReachEndpointsAnswer
		}
	}
	return !beacons && t.tryDue(now, retryEvery)
}

// tryDue reports whether endpoints are to be tried, and when they are tried next.
func (t *target) tryDue(now time.Time, every time.Duration) bool {
	if now.Before(t.tryAt) {
		return false
	}
	t.tryAt = now.Add(every)
	return true
}

func (t *target) endpointsAnswer(now time.Time) bool {
	return !t.connected.IsZero() && now.Sub(t.connected) < connectHolds
}

// lengthenHold sets how long the cluster must answer before it is used again.
func (t *target) lengthenHold(now time.Time) {
	t.hold *= 2
	for calm := now.Sub(t.since); calm >= calmPeriod && t.hold > firstHold; calm -= calmPeriod {
		t.hold /= 2
	}
	t.hold = min(max(t.hold, firstHold), maxHold)
}

func (t *target) whyUnknown() objects.ReachReason {
	switch {
	case t.refused:
		return objects.ReachRefused
	case len(t.beacons) == 0:
		return objects.ReachNoBeacons
	}
	return objects.ReachNeverAnswered
}

func (t *target) set(now time.Time, state objects.ReachState, reason objects.ReachReason) {
	t.state, t.reason, t.since = state, reason, now
	t.steady, t.unproven = time.Time{}, time.Time{}
}

func (t *target) reachability(now time.Time) objects.Reachability {
	out := objects.Reachability{
		Cluster: t.Cluster, Family: t.Family, State: t.state, Reason: t.reason, Since: t.since, Beacons: len(t.beacons),
	}
	for _, b := range t.beacons {
		if b.answered && !b.suspect(now) {
			out.Answering++
			if latency := b.latency.Seconds(); out.Latency == 0 || latency < out.Latency {
				out.Latency = latency
			}
		}
	}
	return out
}
