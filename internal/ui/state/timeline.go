package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Source is where an entry of the timeline comes from.
type Source string

// Sources.
const (
	// Seen: the page saw it change.
	Seen Source = "seen"
	// Event: an agent wrote an Event.
	Event Source = "event"
	// Condition: a condition changed before the page was started.
	Condition Source = "condition"
)

// Entry is one line of the timeline.
type Entry struct {
	// Seq is the number of the snapshot that shows it.
	Seq      int64            `json:"seq"`
	At       time.Time        `json:"at"`
	Source   Source           `json:"source"`
	Severity explain.Severity `json:"severity"`
	Text     string           `json:"text"`
	// Service, as namespace/name, and Cluster are what it is about; empty if it is about several.
	Service string `json:"service,omitempty"`
	Cluster string `json:"cluster,omitempty"`
}

// Observer finds what changed from snapshot to snapshot. It remembers what a snapshot cannot show.
type Observer struct {
	// born is when services came. An export passes through findings on its way: what is wrong with a
	// new service is said when it stays wrong.
	born map[string]time.Time
	// kept are findings, by service, that are neither in its row nor over: their cluster or the broker
	// does not answer.
	kept map[string][]Group
}

// settles is how long a new service is given until its findings count as changes.
const settles = 3 * time.Second

// NewObserver returns an observer that has seen nothing.
func NewObserver() *Observer {
	return &Observer{born: map[string]time.Time{}, kept: map[string][]Group{}}
}

// Observe returns what changed between two snapshots, in words. Changes that many services have in
// common are one entry. Each snapshot is the one before of the next call.
func (o *Observer) Observe(before, after *Snapshot) []Entry {
	n := &observation{Observer: o, before: before, after: after, columns: NewColumns(before.IDs()), joint: map[change][]string{}}
	n.broker()
	n.clusters()
	n.paths()
	n.rows()
	for i := range n.entries {
		n.entries[i].Seq, n.entries[i].At, n.entries[i].Source = after.Seq, after.At, Seen
	}
	return n.entries
}

// observation is the work of one call of Observe.
type observation struct {
	*Observer
	before, after *Snapshot
	// columns are those of before.
	columns *Columns
	entries []Entry
	// joint collects the services with the same change, order the changes as they were found.
	joint map[change][]string
	order []change
}

// change is what services may have in common.
type change struct {
	severity explain.Severity
	cluster  string
	// before and after are put around the name of the service, or the number of services.
	before, after string
}

func (o *observation) add(severity explain.Severity, cluster, format string, args ...any) {
	o.entries = append(o.entries, Entry{Severity: severity, Cluster: cluster, Text: fmt.Sprintf(format, args...)})
}

func (o *observation) addService(c change, service string) {
	if _, known := o.joint[c]; !known {
		o.order = append(o.order, c)
	}
	o.joint[c] = append(o.joint[c], service)
}

func (o *observation) broker() {
	switch was, is := o.before.Broker.Problem, o.after.Broker.Problem; {
	case was == "" && is != "":
		o.add(explain.Fail, "", "the broker does not answer: %s", is)
	case was != "" && is == "":
		o.add(explain.Good, "", "the broker answers")
	}
}

func (o *observation) clusters() {
	was := map[string]*Cluster{}
	for i := range o.before.Clusters {
		was[o.before.Clusters[i].ID] = &o.before.Clusters[i]
	}
	for i := range o.after.Clusters {
		is := &o.after.Clusters[i]
		old := was[is.ID]
		delete(was, is.ID)
		if old == nil {
			o.add(explain.Note, is.ID, "cluster %s was added (%s)", is.ID, is.State)
			continue
		}
		o.cluster(old, is)
	}
	for i := range o.before.Clusters {
		c := &o.before.Clusters[i]
		unread := c.Problem != "" && c.LastSeen == nil // it is known by its context only
		if was[c.ID] != nil && !unread {
			o.add(explain.Warn, c.ID, "cluster %s is no longer a member", c.ID)
		}
	}
}

// memberStates say that a cluster came into a state.
var memberStates = map[status.MemberState]struct {
	severity explain.Severity
	text     string
}{
	status.Alive:   {explain.Good, "the heartbeat of %s reaches the broker"},
	status.Silent:  {explain.Fail, "the heartbeat of %s has stopped"},
	status.Invited: {explain.Note, "cluster %s is invited"},
}

func (o *observation) cluster(old, is *Cluster) {
	if next, said := memberStates[is.State]; said && is.State != old.State && old.State != status.Unknown {
		o.add(next.severity, is.ID, next.text, is.ID)
	}
	switch {
	case old.Problem == "" && is.Problem != "":
		o.add(explain.Fail, is.ID, "the API server of %s does not answer: %s", is.ID, is.Problem)
	case old.Problem != "" && is.Problem == "":
		o.add(explain.Good, is.ID, "the API server of %s answers", is.ID)
	}
	if old.AgentVersion != is.AgentVersion && old.AgentVersion != "" && is.AgentVersion != "" {
		o.add(explain.Note, is.ID, "the agent of %s changed from %s to %s", is.ID, old.AgentVersion, is.AgentVersion)
	}
	if old.DataPlane != is.DataPlane && old.DataPlane != "" && is.DataPlane != "" {
		o.add(explain.Note, is.ID, "the data plane of %s changed from %s to %s", is.ID, old.DataPlane, is.DataPlane)
	}
	if is.Problem != "" || old.Problem != "" {
		return // the checks of a cluster that was not read say nothing
	}
	for _, check := range is.Checks {
		if !slices.ContainsFunc(old.Checks, sameCheck(check)) {
			o.add(explain.Severity(check.Status), is.ID, "%s in %s: %s", check.Code, is.ID, check.Detail)
		}
	}
	for _, check := range old.Checks {
		if !slices.ContainsFunc(is.Checks, sameCheck(check)) {
			o.add(explain.Good, is.ID, "%s in %s is over", check.Code, is.ID)
		}
	}
}

// reachTexts say how a cluster is reached from another.
var reachTexts = map[objects.ReachState]struct {
	severity explain.Severity
	text     string
}{
	objects.Unreachable:         {explain.Fail, "%s unreachable from %s (%s)"},
	objects.Reachable:           {explain.Good, "%s reachable from %s (%s)"},
	objects.SilentButServing:    {explain.Warn, "%s silent, but reachable from %s (%s)"},
	objects.ReachabilityUnknown: {explain.Note, "not known whether %s is reachable from %s (%s)"},
}

func (o *observation) paths() {
	type end struct{ from, to, family string }
	was := map[end]objects.ReachState{}
	for i := range o.before.Paths {
		p := &o.before.Paths[i]
		was[end{p.From, p.Cluster, string(p.Family)}] = p.State
	}
	for i := range o.after.Paths {
		p := &o.after.Paths[i]
		old, known := was[end{p.From, p.Cluster, string(p.Family)}]
		if known && old != p.State {
			next := reachTexts[p.State]
			o.add(next.severity, p.Cluster, next.text, p.Cluster, p.From, p.Family)
		}
	}
}

func (o *observation) rows() {
	walk(o.before.Rows, o.after.Rows, func(old, now *Row) {
		switch {
		case old == nil:
			o.addService(change{severity: explain.Note, after: " is new in the clusterset"}, now.Name)
			o.born[now.Name] = o.after.At
		case now == nil:
			o.addService(change{severity: explain.Note, after: " is no longer in the clusterset"}, old.Name)
			delete(o.born, old.Name)
			delete(o.kept, old.Name)
		case !o.born[now.Name].IsZero(): // it settles
		default:
			o.groups(old, now)
			o.exporters(old, now)
			o.sends(old, now)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(o.born)) {
		if row := o.after.Row(name); o.after.At.Sub(o.born[name]) >= settles && row != nil {
			delete(o.born, name)
			o.groups(&Row{}, row)
		}
	}
	const named = 3 // services that an entry names
	for _, c := range o.order {
		services := o.joint[c]
		if len(services) > named {
			o.entries = append(o.entries, Entry{
				Severity: c.severity, Cluster: c.cluster, Text: c.before + fmt.Sprintf("%d services", len(services)) + c.after,
			})
			continue
		}
		for _, s := range services {
			o.entries = append(o.entries, Entry{Severity: c.severity, Cluster: c.cluster, Service: s, Text: c.before + s + c.after})
		}
	}
}

// groups adds which findings are new and which are over.
func (o *observation) groups(old, now *Row) {
	known := slices.Concat(old.Groups, o.kept[now.Name])
	for i := range now.Groups {
		g := &now.Groups[i]
		added, all := clustersWithout(g, known)
		if all || len(added) > 0 {
			o.addService(change{severity: g.Severity, cluster: only(added), after: fmt.Sprintf(": %s%s (%s)", g.Title, in(added), g.Code)}, now.Name)
		}
	}
	delete(o.kept, now.Name)
	for i := range known {
		g := &known[i]
		gone, all := clustersWithout(g, now.Groups)
		whole, away := len(g.Clusters) == 0 && all, o.after.Broker.Problem != ""
		var over, unknown []string
		for _, id := range gone {
			if away || o.unknown(id) {
				unknown = append(unknown, id)
			} else {
				over = append(over, id)
			}
		}
		if (whole && away) || len(unknown) > 0 {
			o.kept[now.Name] = append(o.kept[now.Name], Group{Code: g.Code, Clusters: unknown})
		}
		if (whole && !away) || len(over) > 0 {
			o.addService(change{severity: explain.Good, cluster: only(over), after: fmt.Sprintf(": %s%s is over", g.Code, in(over))}, now.Name)
		}
	}
}

// unknown reports whether a cluster does not answer now: its findings are neither there nor over.
func (o *observation) unknown(id string) bool {
	return slices.ContainsFunc(o.after.Clusters, func(c Cluster) bool { return c.ID == id && c.Problem != "" })
}

// clustersWithout returns the clusters of a group for which others have no finding of its code.
// all reports whether none has one.
func clustersWithout(g *Group, others []Group) (clusters []string, all bool) {
	clusters, all = slices.Clone(g.Clusters), true
	for i := range others {
		if others[i].Code == g.Code {
			all = false
			clusters = slices.DeleteFunc(clusters, func(id string) bool { return slices.Contains(others[i].Clusters, id) })
		}
	}
	return clusters, all
}

// exporters adds which clusters export the service now, or no longer.
func (o *observation) exporters(old, now *Row) {
	was, is := names(old.Exporters, o.before), names(now.Exporters, o.after)
	for _, id := range is {
		if !slices.Contains(was, id) {
			o.addService(change{severity: explain.Note, cluster: id, before: id + " exports "}, now.Name)
		}
	}
	for _, id := range was {
		if !slices.Contains(is, id) {
			o.addService(change{severity: explain.Note, cluster: id, before: id + " no longer exports "}, now.Name)
		}
	}
}

// sends adds which clusters send to others than before.
func (o *observation) sends(old, now *Row) {
	for i := range o.after.Clusters {
		id := o.after.Clusters[i].ID
		j, ok := o.columns.Index(id)
		if !ok || now.Cell(i).Verdict == Unknown || old.Cell(j).Verdict == Unknown || !now.Cell(i).Imports || !old.Cell(j).Imports {
			continue
		}
		was, is := o.targets(old, o.before, j), o.targets(now, o.after, i)
		if was == is {
			continue
		}
		c := change{severity: explain.Note, cluster: id, before: fmt.Sprintf("%s sends ", id), after: fmt.Sprintf(" to %s, before to %s", is, was)}
		if is == nowhere {
			c.severity = explain.Fail
		}
		o.addService(c, now.Name)
	}
}

// nowhere is said of a cluster that sends to no other.
const nowhere = "no cluster"

// targets returns the clusters that one sends to, in words.
func (o *observation) targets(r *Row, s *Snapshot, i int) string {
	positions, exact := r.Targets(i)
	if !exact {
		return fmt.Sprintf("some of %d clusters", len(r.Exporters))
	}
	indexes := make([]int, len(positions))
	for k, p := range positions {
		indexes[k] = r.Exporters[p]
	}
	ids := names(indexes, s)
	slices.Sort(ids)
	return cmp.Or(strings.Join(ids, ", "), nowhere)
}

func names(indexes []int, s *Snapshot) []string {
	out := make([]string, 0, len(indexes))
	for _, i := range indexes {
		if i < len(s.Clusters) {
			out = append(out, s.Clusters[i].ID)
		}
	}
	return out
}

// in returns where something is, in words.
func in(clusters []string) string {
	const named = 4
	switch n := len(clusters); {
	case n == 0:
		return ""
	case n > named:
		return fmt.Sprintf(" in %d clusters", n)
	}
	return " in " + strings.Join(clusters, ", ")
}

// only returns the cluster of a list of one.
func only(clusters []string) string {
	if len(clusters) == 1 {
		return clusters[0]
	}
	return ""
}

// sameCheck returns a function that reports whether another result is of the same check, with the
// same outcome. Details with numbers and times differ all the time.
func sameCheck(check doctor.Result) func(doctor.Result) bool {
	return func(other doctor.Result) bool { return other.Code == check.Code && other.Status == check.Status }
}
