package reach

import (
	"net/netip"
	"slices"
	"time"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
)

const (
	// probeEvery is how often a beacon is probed, give or take jitter; fastEvery how often while an
	// answer is overdue.
	probeEvery = 500 * time.Millisecond
	fastEvery  = 100 * time.Millisecond
	jitter     = 50 * time.Millisecond
	// minOverdue and maxOverdue bound when an answer is overdue. Between them it is one and a half
	// times the latency.
	minOverdue = 200 * time.Millisecond
	maxOverdue = 600 * time.Millisecond
	// suspectAfter and deadAfter are how long after the first unanswered probe a beacon counts as
	// silent, both plus the latency. A probe is sent every half second, so the beacon has not answered
	// for a quarter of a second more on average.
	suspectAfter = 500 * time.Millisecond
	deadAfter    = 1100 * time.Millisecond
	// maxLatency bounds what a slow link adds to these times.
	maxLatency = time.Second
	// maxPending is how many probes can still be answered: those of three seconds of fast probing.
	maxPending = 30
)

// Beacon is where a cluster answers probes.
type Beacon struct {
	Address  netip.AddrPort
	Identity wire.Identity
}

// beacon is a Beacon with what is known of it.
type beacon struct {
	Beacon
	slot     time.Time     // when it is probed next, but for jitter; beacons of a cluster keep their distance
	nextAt   time.Time     // slot with jitter
	lastSent time.Time     // zero before the first probe
	pending  []sentProbe   // probes without an answer that are newer than the last answered one, oldest first
	silence  time.Time     // when the oldest probe was sent that is newer than the last answered one; zero if there is none
	answered bool          // it has answered: its silence proves something
	latency  time.Duration // rises at once and falls slowly; zero before the first answer
}

type sentProbe struct {
	nonce wire.Nonce
	at    time.Time
}

// due returns when the beacon is to be probed. fast allows more probes while an answer is overdue.
func (b *beacon) due(fast bool) time.Time {
	if !fast || !b.answered || b.silence.IsZero() {
		return b.nextAt
	}
	sooner := b.silence.Add(b.overdueAfter())
	if again := b.lastSent.Add(fastEvery); again.After(sooner) {
		sooner = again
	}
	if sooner.Before(b.nextAt) {
		return sooner
	}
	return b.nextAt
}

// sent records a probe. offset is the jitter of the next one.
func (b *beacon) sent(now time.Time, nonce wire.Nonce, offset time.Duration) {
	if !now.Before(b.nextAt) {
		b.slot = b.slot.Add(probeEvery)
		if now.Sub(b.slot) > 0 {
			b.slot = b.slot.Add(now.Sub(b.slot).Truncate(probeEvery) + probeEvery) // the process was stopped: skip, do not catch up
		}
		b.nextAt = b.slot.Add(offset)
	}
	b.lastSent = now
	if b.silence.IsZero() {
		b.silence = now
	}
	if len(b.pending) == maxPending {
		b.pending = slices.Delete(b.pending, 0, 1)
	}
	b.pending = append(b.pending, sentProbe{nonce, now})
}

// answer records the answer to a probe and returns the time it took. ok is false for datagrams that
// answer no pending probe.
func (b *beacon) answer(now time.Time, datagram []byte) (latency time.Duration, ok bool) {
	nonce, isAnswer := wire.NonceOf(datagram)
	if !isAnswer {
		return 0, false
	}
	at := slices.IndexFunc(b.pending, func(p sentProbe) bool { return p.nonce == nonce })
	if at < 0 || !b.Identity.Verify(datagram, nonce) {
		return 0, false
	}
	latency = now.Sub(b.pending[at].at)
	if !b.answered || latency > b.latency {
		b.latency = latency
	} else {
		b.latency -= (b.latency - latency) / 8
	}
	b.answered = true
	b.pending = slices.Delete(b.pending, 0, at+1)
	b.silence = time.Time{}
	if len(b.pending) > 0 {
		b.silence = b.pending[0].at
	}
	return latency, true
}

// silentFor returns how long the oldest probe has been without an answer.
func (b *beacon) silentFor(now time.Time) time.Duration {
	if b.silence.IsZero() {
		return 0
	}
	return now.Sub(b.silence)
}

func (b *beacon) overdueAfter() time.Duration {
	return min(max(b.latency*3/2, minOverdue), maxOverdue)
}

func (b *beacon) overdue(now time.Time) bool { return b.silentFor(now) >= b.overdueAfter() }

func (b *beacon) suspect(now time.Time) bool {
	return b.silentFor(now) >= suspectAfter+min(b.latency, maxLatency)
}

func (b *beacon) dead(now time.Time) bool {
	return b.silentFor(now) >= deadAfter+min(b.latency, maxLatency)
}
