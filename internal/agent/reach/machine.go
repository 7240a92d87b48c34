// Package reach finds out which clusters can be reached from this one. It probes the beacons of the
// clusters that this one imports from, and judges their silence.
//
// Machine decides without I/O, and time is passed in. Prober connects it to sockets.
package reach

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

const (
	// maxSleep is how long nothing needs to be done at most.
	maxSleep = time.Second
	// maxLate is how late this process may be before that counts.
	maxLate = 50 * time.Millisecond
)

// Target is a cluster that is to be probed.
type Target struct {
	Key
	Beacons []Beacon
	// Refused reports whether the cluster publishes beacons, all at addresses that it may not publish.
	Refused bool
}

// Probe is a datagram to be sent.
type Probe struct {
	To       netip.AddrPort
	Datagram []byte
}

// Change is a new state of a cluster.
type Change struct {
	objects.Reachability
	Before objects.ReachState
	// Lasted is how long the state before lasted.
	Lasted time.Duration
}

// Machine judges which clusters are reached. It is not safe for concurrent use.
type Machine struct {
	// NewNonce returns a nonce that cannot be guessed.
	NewNonce func() wire.Nonce
	// Random is where jitter comes from.
	Random *rand.Rand

	targets   map[Key]*target
	ordered   []*target
	begun     bool // SetTargets was called
	byAddress map[netip.AddrPort][]*target
	expected  time.Time // when Advance is to be called again at the latest
	// readUntil is when the last echo was sent that was read, by family.
	readUntil map[corev1.IPFamily]time.Time
}

// Restore makes clusters unreachable that were so for an earlier process. They stay unreachable
// until they answer steadily. It must be called before SetTargets.
func (m *Machine) Restore(unreachable reachable.Unreachables) {
	m.targets = make(map[Key]*target, len(unreachable))
	for key, since := range unreachable {
		m.targets[key] = &target{Key: key, state: objects.Unreachable, reason: objects.ReachNoAnswer, since: since, hold: firstHold}
	}
}

// SetTargets replaces what is probed. What is known of beacons that stay is kept; what was known of
// others no longer counts. The state of a cluster that stays does not change by that alone.
//
// An unreachable cluster that is no longer in the list is kept for a while, as one that publishes
// no beacons: a service that is deleted and created again must not end the verdict.
func (m *Machine) SetTargets(now time.Time, list []Target) {
	m.begun = true
	targets := make(map[Key]*target, len(list))
	m.byAddress, m.ordered = map[netip.AddrPort][]*target{}, nil
	for key, t := range m.targets {
		if t.state == objects.Unreachable && !slices.ContainsFunc(list, func(wanted Target) bool { return wanted.Key == key }) {
			list = append(slices.Clip(list), Target{Key: key})
		}
	}
	for _, wanted := range list {
		t := m.targets[wanted.Key]
		isNew := t == nil
		if isNew {
			t = &target{Key: wanted.Key, state: objects.ReachabilityUnknown, since: now, created: now}
		}
		t.refused, t.beacons = wanted.Refused, m.merge(now, t.beacons, wanted.Beacons)
		if isNew {
			t.reason = t.whyUnknown()
		}
		for _, b := range t.beacons {
			m.byAddress[b.Address] = append(m.byAddress[b.Address], t)
		}
		targets[wanted.Key] = t
		m.ordered = append(m.ordered, t)
	}
	m.targets = targets
	slices.SortFunc(m.ordered, func(a, b *target) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(string(a.Family), string(b.Family)))
	})
}

// merge returns the wanted beacons, those that are known with what is known of them. New ones get
// phases between each other.
func (m *Machine) merge(now time.Time, known []*beacon, wanted []Beacon) []*beacon {
	out := make([]*beacon, 0, len(wanted))
	offset := time.Duration(m.Random.Int64N(int64(probeEvery)))
	for i, w := range wanted {
		if at := slices.IndexFunc(known, func(b *beacon) bool { return b.Beacon == w }); at >= 0 {
			out = append(out, known[at])
			continue
		}
		phase := (offset + probeEvery*time.Duration(i)/time.Duration(len(wanted))) % probeEvery
		out = append(out, &beacon{Beacon: w, slot: now.Add(phase), nextAt: now.Add(phase)})
	}
	return out
}

// Advance returns the probes to be sent now, the clusters of which endpoints are to be tried, the
// states that changed, and when to call it again at the latest.
func (m *Machine) Advance(now time.Time) (probes []Probe, tries []Key, changes []Change, next time.Time) {
	m.forgive(now)
	next = now.Add(maxSleep)
	for _, t := range m.ordered {
		changes = append(changes, m.judge(now, t, &tries)...)
		fast := t.state == objects.Reachable
		for _, b := range t.beacons {
			if !b.due(fast).After(now) {
				nonce := m.NewNonce()
				b.sent(now, nonce, time.Duration(m.Random.Int64N(int64(2*jitter)))-jitter)
				probes = append(probes, Probe{b.Address, b.Identity.Probe(nonce)})
			}
			if due := b.due(fast); due.Before(next) {
				next = due
			}
		}
		if e := t.evidence(now, m.read(now, t.Family)); fast && e.most(e.overdue) && next.After(now.Add(fastEvery/4)) {
			next = now.Add(fastEvery / 4) // a verdict must not wait for the next probe
		}
	}
	m.expected = next
	return probes, tries, changes, next
}

// forgive shortens the silence of all beacons by the time that this process was late: answers that
// arrived meanwhile may not have been read yet.
func (m *Machine) forgive(now time.Time) {
	late := now.Sub(m.expected)
	if m.expected.IsZero() || late < maxLate {
		return
	}
	for _, t := range m.ordered {
		t.forgive(now, late)
	}
}

// ReadUntil records that what arrived in a family until a moment has been read by now. Before the
// first call it is assumed that everything is read at once; after it, silence counts up to the
// latest such moment. If that is long ago, answers may even have been lost because they were not
// read.
func (m *Machine) ReadUntil(now time.Time, family corev1.IPFamily, at time.Time) {
	if m.readUntil == nil {
		m.readUntil = map[corev1.IPFamily]time.Time{}
	}
	m.readUntil[family] = at
	late := now.Sub(at)
	if late < maxLate {
		return
	}
	for _, t := range m.ordered {
		if t.Family == family {
			t.forgive(now, late)
		}
	}
}

// read returns until when everything that arrived has been read.
func (m *Machine) read(now time.Time, family corev1.IPFamily) time.Time {
	if at, known := m.readUntil[family]; known && at.Before(now) {
		return at
	}
	return now
}

// Overdue reports whether an answer is overdue in a family, so that ReadUntil is needed.
func (m *Machine) Overdue(now time.Time, family corev1.IPFamily) bool {
	return slices.ContainsFunc(m.ordered, func(t *target) bool { return t.Family == family && t.evidence(now, now).overdue > 0 })
}

// Answered records a datagram that arrived. latency is the time since its probe was sent, and from
// which cluster the answer is; ok is false for what is not an answer of a beacon at that address.
func (m *Machine) Answered(now time.Time, from netip.AddrPort, datagram []byte) (changes []Change, key Key, latency time.Duration, ok bool) {
	for _, t := range m.byAddress[from] {
		for _, b := range t.beacons {
			if b.Address != from {
				continue
			}
			if latency, ok = b.answer(now, datagram); ok {
				return m.judge(now, t, nil), t.Key, latency, true
			}
		}
	}
	return nil, Key{}, 0, false
}

// Connected records that an endpoint of a cluster accepted a connection.
func (m *Machine) Connected(now time.Time, key Key) []Change {
	t := m.targets[key]
	if t == nil {
		return nil
	}
	t.connected = now
	return m.judge(now, t, nil)
}

// judge updates the state of a target and returns what changed. Without tries, it leaves endpoints
// that are to be tried to the next Advance.
func (m *Machine) judge(now time.Time, t *target, tries *[]Key) []Change {
	before, since, tryAt := t.state, t.since, t.tryAt
	if try := t.judge(now, m.read(now, t.Family)); try && tries != nil {
		*tries = append(*tries, t.Key)
	} else if try {
		t.tryAt = tryAt
	}
	if t.state == before {
		return nil
	}
	return []Change{{t.reachability(now), before, now.Sub(since)}}
}

// Snapshot returns the state of all clusters, sorted.
func (m *Machine) Snapshot(now time.Time) []objects.Reachability {
	out := make([]objects.Reachability, 0, len(m.ordered))
	for _, t := range m.ordered {
		out = append(out, t.reachability(now))
	}
	return out
}

// Undecided reports whether the beacons of a cluster have not had the time to answer yet.
func (m *Machine) Undecided(now time.Time, cluster string) bool {
	isNew := func(t *target) bool {
		return t.Cluster == cluster && t.state == objects.ReachabilityUnknown && now.Sub(t.created) < firstAnswer
	}
	return !m.begun || slices.ContainsFunc(m.ordered, isNew)
}
