package state

import (
	"slices"
	"time"
)

// Limits of a history.
const (
	// MinHistory is how long a difference is kept at least, unless the limit of MaxChanges is
	// reached before.
	MinHistory = 2 * time.Hour
	// MaxChanges bounds the rows that the differences of a history hold together, and with them its
	// memory: a row of 250 clusters takes about 1 KiB.
	MaxChanges = 100_000
	// MaxEntries bounds the entries of the timeline.
	MaxEntries = 20_000
)

// History is a snapshot of the past, all differences since then, and the timeline. The timeline may
// reach further back than the differences.
type History struct {
	Base    *Snapshot `json:"base"`
	Deltas  []Delta   `json:"deltas"`
	Log     []Entry   `json:"log"`
	changes int
	now     *Snapshot
}

// NewHistory returns a history that begins with a snapshot.
func NewHistory(base *Snapshot) *History { return &History{Base: base, now: base} }

// Restore prepares a history that was read from a file.
func (h *History) Restore() {
	h.now, h.changes = h.Base, 0
	for i := range h.Deltas {
		h.now = h.now.Apply(&h.Deltas[i])
		h.changes += h.Deltas[i].size()
	}
}

// Now returns the newest snapshot.
func (h *History) Now() *Snapshot { return h.now }

// Refresh replaces the newest snapshot by one that differs in heartbeats and latencies only.
func (h *History) Refresh(now *Snapshot) { h.now = now }

// Add adds a difference that leads to a snapshot, and forgets what is too old or too much.
func (h *History) Add(d Delta, after *Snapshot) {
	h.Log = append(h.Log, d.Entries...)
	h.forget(d.At)
	h.Deltas = append(h.Deltas, d)
	h.changes += d.size()
	h.now = after
	for len(h.Deltas) > 1 {
		first := &h.Deltas[0]
		if h.changes <= MaxChanges && d.At.Sub(first.At) <= MinHistory {
			break
		}
		h.Base = h.Base.Apply(first)
		h.changes -= first.size()
		h.Deltas[0] = Delta{} // its rows can be freed
		h.Deltas = h.Deltas[1:]
	}
}

// forget drops entries of the timeline that are too old or too many.
func (h *History) forget(now time.Time) {
	first := max(0, len(h.Log)-MaxEntries)
	for first < len(h.Log) && now.Sub(h.Log[first].At) > MinHistory {
		first++
	}
	h.Log = h.Log[first:]
}

// size is how many rows a difference holds.
func (d *Delta) size() int {
	n := 1 + len(d.Rows) + len(d.Clusters)
	if d.Full != nil {
		n += len(d.Full.Rows)
	}
	return n
}

// At returns the snapshot after the difference with a number. ok is false if the history does not
// reach back that far.
func (h *History) At(seq int64) (s *Snapshot, ok bool) {
	if seq < h.Base.Seq {
		return nil, false
	}
	if seq >= h.now.Seq {
		return h.now, true
	}
	s = h.Base
	for i := range h.Deltas {
		if h.Deltas[i].Seq > seq {
			break
		}
		s = s.Apply(&h.Deltas[i])
	}
	return s, true
}

// Since returns the differences after the one with a number. ok is false if the history does not
// reach back that far, or not forward.
func (h *History) Since(seq int64) (deltas []Delta, ok bool) {
	if seq < h.Base.Seq || seq > h.now.Seq {
		return nil, false
	}
	from, _ := slices.BinarySearchFunc(h.Deltas, seq+1, func(d Delta, seq int64) int { return int(d.Seq - seq) })
	return h.Deltas[from:], true
}

// Entries returns the timeline, the oldest entry first.
func (h *History) Entries() []Entry {
	return slices.SortedStableFunc(slices.Values(h.Log), func(a, b Entry) int { return a.At.Compare(b.At) })
}
