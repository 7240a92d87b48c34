package state

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// Delta is the difference between a snapshot and the next. It is what viewers are sent, and one
// step of the history.
type Delta struct {
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
	// Full replaces everything: the clusters, and with them the columns, are others than before.
	Full *Snapshot `json:"full,omitempty"`
	// Rows are new or changed, Gone are the names of those that are no more.
	Rows []*Row   `json:"rows,omitempty"`
	Gone []string `json:"gone,omitempty"`
	// Clusters are those that changed; heartbeats alone do not count.
	Clusters []Cluster `json:"clusters,omitempty"`
	// Paths and Broker are set if they changed. Latencies alone do not count.
	Paths  *[]Path `json:"paths,omitempty"`
	Broker *Broker `json:"broker,omitempty"`
	// Entries are what the timeline says about it.
	Entries []Entry `json:"entries,omitempty"`
}

// Empty reports whether nothing changed.
func (d *Delta) Empty() bool {
	return d.Full == nil && len(d.Rows) == 0 && len(d.Gone) == 0 && len(d.Clusters) == 0 && d.Paths == nil && d.Broker == nil &&
		len(d.Entries) == 0
}

// Diff returns the difference between two snapshots, without entries of the timeline: Observe adds
// those. Rows with the same pointer are the same.
func Diff(before, after *Snapshot) Delta {
	d := Delta{Seq: after.Seq, At: after.At}
	if !slices.Equal(before.IDs(), after.IDs()) || before.ClusterSet != after.ClusterSet {
		d.Full = after
		return d
	}
	walk(before.Rows, after.Rows, func(old, now *Row) {
		switch {
		case now == nil:
			d.Gone = append(d.Gone, old.Name)
		case old == nil || !old.Equal(now):
			d.Rows = append(d.Rows, now)
		}
	})
	for i := range after.Clusters {
		if !after.Clusters[i].same(&before.Clusters[i]) {
			d.Clusters = append(d.Clusters, after.Clusters[i])
		}
	}
	if !slices.EqualFunc(before.Paths, after.Paths, samePath) {
		d.Paths = &after.Paths
	}
	if !reflect.DeepEqual(before.Broker, after.Broker) {
		d.Broker = &after.Broker
	}
	return d
}

// walk calls visit with the rows of two sorted lists that have the same name; one is nil if only
// the other list has it.
func walk(before, after []*Row, visit func(old, now *Row)) {
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		switch {
		case j == len(after) || (i < len(before) && before[i].Name < after[j].Name):
			visit(before[i], nil)
			i++
		case i == len(before) || before[i].Name > after[j].Name:
			visit(nil, after[j])
			j++
		default:
			if before[i] != after[j] {
				visit(before[i], after[j])
			}
			i++
			j++
		}
	}
}

// Equal reports whether two rows say the same.
func (r *Row) Equal(other *Row) bool {
	return r == other || (r.Name == other.Name && r.Verdict == other.Verdict && r.Cells == other.Cells && r.Sends == other.Sends &&
		slices.Equal(r.Exporters, other.Exporters) && reflect.DeepEqual(r.Groups, other.Groups))
}

// same reports whether two clusters differ in their heartbeats at most, by which they are not
// different: each member sends one every few seconds.
func (c *Cluster) same(other *Cluster) bool {
	a, b := *c, *other
	a.LastHeartbeat, b.LastHeartbeat = nil, nil
	return reflect.DeepEqual(a, b)
}

// samePath reports whether two paths differ in their latencies at most.
func samePath(a, b Path) bool {
	a.Latency, b.Latency = 0, 0
	a.Since, b.Since = a.Since.Truncate(time.Second), b.Since.Truncate(time.Second)
	return a == b
}

// Apply returns the snapshot after a difference. It does not change the one before.
func (s *Snapshot) Apply(d *Delta) *Snapshot {
	if d.Full != nil {
		full := *d.Full
		return &full
	}
	out := *s
	out.Seq, out.At = d.Seq, d.At
	if d.Broker != nil {
		out.Broker = *d.Broker
	}
	if d.Paths != nil {
		out.Paths = *d.Paths
	}
	if len(d.Clusters) > 0 {
		out.Clusters = slices.Clone(s.Clusters)
		for _, c := range d.Clusters {
			if at := slices.IndexFunc(out.Clusters, func(other Cluster) bool { return other.ID == c.ID }); at >= 0 {
				out.Clusters[at] = c
			}
		}
	}
	if len(d.Rows)+len(d.Gone) > 0 {
		out.Rows = applyRows(s.Rows, d)
	}
	return &out
}

func applyRows(rows []*Row, d *Delta) []*Row {
	out := make([]*Row, 0, len(rows)+len(d.Rows))
	replaced := make(map[string]bool, len(d.Rows)+len(d.Gone))
	for _, r := range d.Rows {
		replaced[r.Name] = true
	}
	for _, name := range d.Gone {
		replaced[name] = true
	}
	for _, r := range rows {
		if !replaced[r.Name] {
			out = append(out, r)
		}
	}
	out = append(out, d.Rows...)
	slices.SortFunc(out, func(a, b *Row) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
