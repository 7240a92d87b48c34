package fleet

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui/state"
)

// Times of the engine.
const (
	// lookEvery is how often it looks without a change: leases expire by themselves.
	lookEvery = time.Second
	// gather is how long it waits for further changes after one: a change of a service comes as
	// several objects.
	gatherChanges = 100 * time.Millisecond
	// budget bounds the time for explaining services before what is known is published.
	budget = 400 * time.Millisecond
	// settleTimeout is how long nothing counts as a change because clusters are read for the first
	// time. One that does not answer has failed long before.
	settleTimeout = 30 * time.Second
	// firstCheck is when clusters are examined first.
	firstCheck = 3 * time.Second
	// pastWindow is how far conditions are looked at that changed before the page was started, and
	// maxPast bounds how many.
	pastWindow = time.Hour
	maxPast    = 500
)

// engine is what the loop keeps between two looks.
type engine struct {
	*Fleet
	rows    map[string]*state.Row
	columns *state.Columns
	// queue are the services that are to be explained.
	queue map[types.NamespacedName]bool
	// clusters and broker are what services had in common at the last look, alive which members were.
	clusters []explain.Cluster
	broker   explain.Broker
	alive    map[string]bool
	report   status.Report
	facts    *state.ClusterFacts
	// assessed is when the clusters were assessed, assessEvery how often that is done: the more there
	// is to count, the less often.
	assessed    time.Time
	assessEvery time.Duration
	// settled reports whether all was read once. Until then, nothing that is found counts as a change.
	settled  bool
	observer *state.Observer
	started  time.Time
}

func (f *Fleet) engine(ctx context.Context) {
	e := &engine{
		Fleet: f, rows: map[string]*state.Row{}, columns: state.NewColumns(nil), queue: map[types.NamespacedName]bool{},
		alive: map[string]bool{}, observer: state.NewObserver(), started: time.Now(),
	}
	for ctx.Err() == nil {
		if len(e.queue) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-f.wake:
				pause(ctx, gatherChanges)
			case <-time.After(lookEvery):
			}
		}
		e.look(ctx)
	}
}

// look reads what changed, explains it and publishes the difference.
func (e *engine) look(ctx context.Context) {
	e.mu.Lock()
	todo := e.pending
	e.pending.reset()
	e.mu.Unlock()
	clusters, broker := e.Fleet.clusters(), e.Fleet.broker.broker()
	reader := survey.NewServiceReader(ctx, clusters, broker)
	e.mu.Lock()
	e.reader = reader
	e.mu.Unlock()
	e.assess(ctx, clusters, broker, todo.common || todo.all)
	e.enqueue(ctx, &todo, reader, clusters, broker)
	e.explain(ctx, reader)
	e.publish(todo.entries, clusters)
}

// assess finds the state of the clusters.
func (e *engine) assess(ctx context.Context, clusters []*survey.Cluster, broker *survey.Broker, now bool) {
	begin := time.Now()
	if !now && begin.Sub(e.assessed) < e.assessEvery {
		return
	}
	e.mu.Lock()
	reached := maps.Clone(e.reached)
	facts := &state.ClusterFacts{Read: map[string]time.Time{}, Kubernetes: map[string]string{}, Checks: e.checks}
	e.mu.Unlock()
	for _, l := range e.links {
		l.mu.Lock()
		facts.Read[l.state.Name()], facts.Kubernetes[l.state.Name()] = l.lastSeen, l.version
		l.mu.Unlock()
	}
	in := survey.ReadStatusObjects(ctx, clusters, broker, func(i int) []objects.Reachability { return reached[clusters[i].Name()] })
	facts.Used = survey.UsedAddresses(in.Records)
	e.report, e.facts = status.AssessClusters(in), facts
	e.assessed = time.Now()
	e.assessEvery = max(lookEvery, 10*e.assessed.Sub(begin))
}

// enqueue finds which services are to be explained.
func (e *engine) enqueue(ctx context.Context, todo *pending, reader *survey.ServiceReader, clusters []*survey.Cluster, broker *survey.Broker) {
	for key := range todo.services {
		e.queue[key] = true
	}
	common, onBroker := reader.Common()
	alive := e.aliveMembers()
	onBroker.Leases = nil // they change all the time
	all := e.newColumns() || todo.all || !slices.EqualFunc(common, e.clusters, sameCommon) || onBroker.Problem != e.broker.Problem
	e.clusters, e.broker = common, onBroker
	if all {
		maps.Copy(e.queue, e.services(ctx, clusters, broker))
	}
	var turned []int // clusters that are alive now and were not before, or the reverse
	for id, is := range alive {
		if at, ok := e.columns.Index(id); ok && is != e.alive[id] {
			turned = append(turned, at)
		}
	}
	e.alive = alive
	if all || len(todo.namespaces)+len(turned) == 0 {
		return // services has all rows
	}
	for _, row := range e.rows {
		key := keyOf(row.Name)
		takesPart := func(at int) bool { return row.Cell(at).Verdict != state.None }
		if todo.namespaces[key.Namespace] || slices.ContainsFunc(turned, takesPart) {
			e.queue[key] = true
		}
	}
}

// sameCommon reports whether services of a cluster have the same in common as before. Clocks are
// left out: how far they are ahead is measured all the time.
func sameCommon(a, b explain.Cluster) bool {
	a.ClockAhead, b.ClockAhead = metav1.Duration{}, metav1.Duration{}
	return reflect.DeepEqual(a, b)
}

func (e *engine) aliveMembers() map[string]bool {
	out := map[string]bool{}
	for i := range e.report.Clusters {
		out[e.report.Clusters[i].ID] = e.report.Clusters[i].State == status.Alive
	}
	return out
}

// newColumns reports whether the clusters are others than before, and takes them over.
func (e *engine) newColumns() bool {
	next := state.NewClusters(&e.report, e.facts, e.now.Clusters)
	ids := make([]string, len(next))
	for i := range next {
		ids[i] = next[i].ID
	}
	if slices.Equal(ids, e.columns.IDs) {
		return false
	}
	columns := state.NewColumns(ids)
	for name, row := range e.rows {
		e.rows[name] = row.Moved(e.columns, columns)
	}
	e.columns = columns
	return true
}

func keyOf(name string) types.NamespacedName {
	namespace, name, _ := strings.Cut(name, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// services returns all services that are exported or imported.
func (e *engine) services(ctx context.Context, clusters []*survey.Cluster, broker *survey.Broker) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	if broker.Problem == nil {
		var records v1alpha1.ExportRecordList
		if broker.Client.List(ctx, &records, client.InNamespace(broker.Namespace)) == nil {
			for i := range records.Items {
				spec := &records.Items[i].Spec
				out[types.NamespacedName{Namespace: spec.ServiceNamespace, Name: spec.ServiceName}] = true
			}
		}
	}
	for _, c := range survey.ReadServices(ctx, clusters, "") {
		for i := range c.Exports {
			out[client.ObjectKeyFromObject(&c.Exports[i])] = true
		}
		for i := range c.Imports {
			out[client.ObjectKeyFromObject(&c.Imports[i])] = true
		}
	}
	for name := range e.rows {
		out[keyOf(name)] = true
	}
	return out
}

// explain explains services of the queue until the budget is used up.
func (e *engine) explain(ctx context.Context, reader *survey.ServiceReader) {
	deadline := time.Now().Add(budget)
	for key := range e.queue {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return
		}
		delete(e.queue, key)
		in := e.input(ctx, reader, key)
		before := e.rows[key.String()]
		if !known(&in, before, e.columns) {
			delete(e.rows, key.String())
			continue
		}
		report := explain.Explain(in)
		row := state.NewRow(&in, &report, e.columns, before)
		if before == nil || !before.Equal(row) {
			e.rows[row.Name] = row
		}
	}
}

// known reports whether a service belongs to the clusterset, or did where that cannot be read now.
func known(in *explain.Input, before *state.Row, columns *state.Columns) bool {
	if len(in.Broker.Records) > 0 || (in.Broker.Problem != "" && before != nil) {
		return true
	}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if c.Export != nil || (c.Import != nil && !onBroker(c.Import)) {
			return true
		}
		if at, ok := columns.Index(c.ID); ok && c.Problem != "" && before != nil && before.Cell(at) != (state.Cell{Verdict: state.Unknown}) {
			return true
		}
	}
	return false
}

// onBroker reports whether a ServiceImport is an aggregate of a broker on the same API server.
func onBroker(si *mcsv1beta1.ServiceImport) bool {
	_, aggregate := si.Labels[v1alpha1.LabelServiceNamespace]
	return aggregate
}

// publish publishes the difference to the snapshot before.
func (e *engine) publish(entries []state.Entry, clusters []*survey.Cluster) {
	before := e.now
	after := &state.Snapshot{
		Seq: before.Seq + 1, At: time.Now().UTC(), ClusterSet: cmp.Or(e.report.ClusterSet, before.ClusterSet),
		Broker: state.Broker{Broker: e.report.Broker}, Clusters: state.NewClusters(&e.report, e.facts, before.Clusters),
		Paths: state.NewPaths(&e.report), Rows: slices.Collect(maps.Values(e.rows)),
	}
	slices.SortFunc(after.Rows, func(a, b *state.Row) int { return cmp.Compare(a.Name, b.Name) })
	e.Fleet.broker.mu.Lock()
	if seen := e.Fleet.broker.lastSeen; after.Broker.Problem != "" && !seen.IsZero() {
		after.Broker.LastSeen = &seen
		after.Broker.Server = cmp.Or(after.Broker.Server, before.Broker.Server)
	}
	e.Fleet.broker.mu.Unlock()
	delta := state.Diff(before, after)
	switch {
	case e.settled:
		delta.Entries = append(e.observer.Observe(before, after), entries...)
	case e.complete(clusters):
		e.settled = true
		delta.Entries = append(e.past(clusters), entries...)
	default:
		e.note(func(p *pending) { p.entries = append(entries, p.entries...) })
	}
	for i := range delta.Entries {
		delta.Entries[i].Seq = after.Seq
	}
	if delta.Empty() {
		e.keep(before, after)
		return
	}
	e.mu.Lock()
	e.now = after
	e.mu.Unlock()
	e.Publish(delta, after)
}

// keep takes over what changed without being a difference: heartbeats and latencies.
func (e *engine) keep(before, after *state.Snapshot) {
	same := *before
	same.Clusters, same.Paths = after.Clusters, after.Paths
	e.mu.Lock()
	e.now = &same
	e.mu.Unlock()
	e.Publish(state.Delta{}, &same)
}

// complete reports whether all that answers was read.
func (e *engine) complete(clusters []*survey.Cluster) bool {
	if len(e.queue) > 0 {
		return false
	}
	waiting := e.Fleet.broker.broker().Problem == errConnecting //nolint:errorlint // it is this very value, and never wrapped
	for _, c := range clusters {
		waiting = waiting || c.Problem == errConnecting //nolint:errorlint // as above
	}
	return !waiting || time.Since(e.started) > settleTimeout
}

// past returns which conditions changed before the page was started.
func (e *engine) past(clusters []*survey.Cluster) []state.Entry {
	var out []state.Entry
	since := time.Now().Add(-pastWindow)
	for _, c := range survey.ReadServices(context.Background(), clusters, "") {
		for i := range c.Exports {
			out = append(out, state.FromExport(c.ID, &c.Exports[i], since)...)
		}
		for i := range c.Imports {
			out = append(out, state.FromImport(c.ID, &c.Imports[i], since)...)
		}
	}
	slices.SortStableFunc(out, func(a, b state.Entry) int { return a.At.Compare(b.At) })
	return out[max(0, len(out)-maxPast):]
}
