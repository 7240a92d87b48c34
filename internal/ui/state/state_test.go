package state

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/objects"
)

var noon = time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)

func importOf(name string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

func imported(source string, ready bool) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mcsv1beta1.LabelSourceCluster: source}},
		Endpoints:  []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)}}},
	}
}

// fixture is a service that east and north export and west imports, which the broker and east,
// west were read for.
func fixture() (explain.Input, explain.Report, *Columns) {
	in := explain.Input{Namespace: "shop", Name: "web", Clusters: []explain.Cluster{
		{ID: "east", Member: true, Import: importOf("web"), Imported: []discoveryv1.EndpointSlice{imported("east", true)}},
		{ID: "west", Member: true, Import: importOf("web"), Imported: []discoveryv1.EndpointSlice{imported("east", true), imported("north", true)}},
	}}
	report := explain.Report{
		Exporters: []explain.Exporter{{Cluster: "north"}, {Cluster: "east"}},
		Importers: []explain.Importer{{Cluster: "east"}, {Cluster: "west"}},
	}
	return in, report, NewColumns([]string{"east", "north", "south", "west"})
}

func cellsOf(r *Row) []Cell {
	var out []Cell
	for i := range r.Cells {
		out = append(out, r.Cell(i))
	}
	return out
}

func TestCellsAreLetters(t *testing.T) {
	for _, v := range []Verdict{None, OK, Warn, Fail, Unknown} {
		for _, c := range []Cell{{v, false, false}, {v, true, false}, {v, false, true}, {v, true, true}} {
			if char := c.Char(); char < 'A' || char > 'Z' || CellOf(char) != c {
				t.Errorf("%+v is %q, which is %+v", c, char, CellOf(char))
			}
		}
	}
	if CellOf('z') != (Cell{}) || CellOf(0) != (Cell{}) {
		t.Error("another character is no part in the service")
	}
}

func TestRowOfAHealthyService(t *testing.T) {
	in, report, columns := fixture()
	r := NewRow(&in, &report, columns, nil)
	want := []Cell{{OK, true, true}, {OK, true, false}, {None, false, false}, {OK, false, true}}
	if diff := cmp.Diff(want, cellsOf(r)); diff != "" || r.Verdict != OK {
		t.Errorf("verdict %d, cells (-want +got):\n%s", r.Verdict, diff)
	}
	if diff := cmp.Diff([]int{1, 0}, r.Exporters); diff != "" {
		t.Errorf("exporters: %s", diff)
	}
	if got, exact := r.Targets(3); !exact || !cmp.Equal(got, []int{0, 1}) {
		t.Errorf("west sends to %v", got)
	}
	if got, _ := r.Targets(0); !cmp.Equal(got, []int{1}) {
		t.Errorf("east sends to %v", got)
	}
}

// A cluster sends to ready endpoints only, and to those of an unreachable cluster only when there
// are no others.
func TestTargets(t *testing.T) {
	c := &explain.Cluster{Imported: []discoveryv1.EndpointSlice{imported("east", true), imported("north", false), imported("south", true)}}
	if got := targets(c); !cmp.Equal(got, []string{"east", "south"}) {
		t.Errorf("%v", got)
	}
	c.Unreachable = []string{"south"}
	if got := targets(c); !cmp.Equal(got, []string{"east"}) {
		t.Errorf("south is unreachable: %v", got)
	}
	c.Unreachable = []string{"south", "east"}
	if got := targets(c); !cmp.Equal(got, []string{"east", "south"}) {
		t.Errorf("both are unreachable, and kept: %v", got)
	}
}

func TestRowWithOtherColumns(t *testing.T) {
	in, report, columns := fixture()
	r := NewRow(&in, &report, columns, nil)
	wider := NewColumns([]string{"alpha", "east", "north", "west"})
	moved := r.Moved(columns, wider)
	want := []Cell{{None, false, false}, {OK, true, true}, {OK, true, false}, {OK, false, true}}
	if diff := cmp.Diff(want, cellsOf(moved)); diff != "" || !cmp.Equal(moved.Exporters, []int{2, 1}) || moved.Sends != "A"+r.Sends[:2]+r.Sends[3:] {
		t.Errorf("exporters %v, sends %s, cells (-want +got):\n%s", moved.Exporters, moved.Sends, diff)
	}
	if without := r.Moved(columns, NewColumns([]string{"east", "west"})); !cmp.Equal(without.Exporters, []int{0}) || without.Sends != "AA" {
		t.Errorf("north is gone: %+v", without)
	}
}

func TestManyExporters(t *testing.T) {
	r := &Row{Exporters: []int{0, 1, 2, 3, 4, 5, 6}, Sends: string([]byte{
		sendChar([]int{0, 1, 2, 3, 4, 5, 6}, 7), sendChar([]int{3}, 7), sendChar(nil, 7),
	})}
	if got, exact := r.Targets(0); !exact || len(got) != 7 {
		t.Errorf("all: %v", got)
	}
	if _, exact := r.Targets(1); exact {
		t.Error("one of seven is not shown in the matrix")
	}
	if got, exact := r.Targets(2); !exact || len(got) != 0 {
		t.Errorf("none: %v", got)
	}
}

func TestFindingsColourTheirCells(t *testing.T) {
	in, report, columns := fixture()
	report.Findings = []explain.Finding{
		{
			Code: "import-missing", Title: "the service is not imported", Severity: explain.Fail, Hop: explain.HopImport, Cluster: "south",
			Cure: "do this",
		},
		{Code: "port-conflict", Title: "the exports have different ports", Severity: explain.Warn, Hop: explain.HopMerge, Cluster: "east, north"},
		{Code: "cluster-unreachable", Severity: explain.Note, Cluster: "west"},
	}
	r := NewRow(&in, &report, columns, nil)
	want := []Cell{{Warn, true, true}, {Warn, true, false}, {Fail, false, false}, {OK, false, true}}
	if diff := cmp.Diff(want, cellsOf(r)); diff != "" || r.Verdict != Fail {
		t.Errorf("verdict %d, cells (-want +got):\n%s", r.Verdict, diff)
	}
	if len(r.Groups) != 2 || !cmp.Equal(r.Groups[1].Clusters, []string{"east", "north"}) {
		t.Errorf("groups: %+v", r.Groups)
	}
	report.Findings = []explain.Finding{{Code: "no-clusterset-ip", Severity: explain.Fail}}
	if r := NewRow(&in, &report, columns, nil); r.Cell(3).Verdict != Fail || r.Cell(2).Verdict != None {
		t.Errorf("a finding about the whole service counts where it is used: %+v", cellsOf(r))
	}
}

func TestFindingsOfOneKindAreGrouped(t *testing.T) {
	in, report, columns := fixture()
	for _, id := range []string{"east", "west", "south"} {
		report.Findings = append(report.Findings, explain.Finding{Code: "endpoints-behind", Severity: explain.Warn, Cluster: id, Detail: id})
	}
	r := NewRow(&in, &report, columns, nil)
	if len(r.Groups) != 1 || !cmp.Equal(r.Groups[0].Clusters, []string{"east", "west", "south"}) || r.Groups[0].Detail != "east" {
		t.Errorf("%+v", r.Groups)
	}
}

// Cells of a cluster or a broker that does not answer keep what was last known.
func TestUnknownCells(t *testing.T) {
	in, report, columns := fixture()
	before := NewRow(&in, &report, columns, nil)
	in.Clusters[1] = explain.Cluster{ID: "west", Problem: "no answer"}
	report.Importers = report.Importers[:1]
	r := NewRow(&in, &report, columns, before)
	if want := (Cell{Unknown, false, true}); r.Cell(3) != want || r.Sends[3] != before.Sends[3] {
		t.Errorf("west was last seen with %+v: %+v", want, r.Cell(3))
	}
	if r.Verdict != OK {
		t.Error("a cluster that does not answer does not make every service trouble")
	}
	report.Findings = []explain.Finding{{Code: "type-conflict", Severity: explain.Fail, Cluster: "west"}} // the broker has the records
	if r := NewRow(&in, &report, columns, before); r.Verdict != Fail || r.Cell(3).Verdict != Unknown {
		t.Errorf("with a finding about the cluster: %v, its cell %+v", r.Verdict, r.Cell(3))
	}
	report.Findings = nil
	in, report, _ = fixture()
	in.Broker.Problem = "no answer"
	report.Findings = []explain.Finding{{Code: "broker-unreachable", Severity: explain.Fail}}
	report.Exporters = report.Exporters[1:]
	r = NewRow(&in, &report, columns, before)
	want := []Cell{{OK, true, true}, {Unknown, true, false}, {None, false, false}, {OK, false, true}}
	if diff := cmp.Diff(want, cellsOf(r)); diff != "" || len(r.Groups) != 0 {
		t.Errorf("groups %v, cells (-want +got):\n%s", r.Groups, diff)
	}
}

func TestClustersOfTheSnapshot(t *testing.T) {
	report := &status.Report{
		Clusters: []status.Member{
			{ID: "west", State: status.Alive, Blocks: []string{"243.1.0.0/24"}},
			{ID: "east", State: status.Silent, Problem: ""},
			{ID: "north", State: status.Alive, Problem: "no answer"},
		},
		Reachability: []status.Path{{From: "west", Reachability: objects.Reachability{Cluster: "east", State: objects.Reachable}},
			{From: "west", Reachability: objects.Reachability{Cluster: "north", State: objects.Unreachable, Reason: objects.ReachNoAnswer}}},
	}
	facts := &ClusterFacts{
		Read: map[string]time.Time{"west": noon, "north": noon}, Kubernetes: map[string]string{"west": "v1.36.0"},
		Checks: []doctor.Result{{Code: "agent", Status: doctor.Pass, Where: "west"}, {Code: "dns-forward", Status: doctor.Warn, Where: "west"}},
	}
	got := NewClusters(report, facts, nil)
	if got[0].ID != "east" || got[0].Verdict != Fail || got[0].Read {
		t.Errorf("east: %+v", got[0])
	}
	if got[1].Verdict != Unknown || got[1].LastSeen == nil || !got[1].LastSeen.Equal(noon) {
		t.Errorf("north: %+v", got[1])
	}
	west := got[2]
	if west.Verdict != Warn || len(west.Checks) != 1 || west.Pool == nil || west.Pool.Size != 254 || west.Kubernetes != "v1.36.0" {
		t.Errorf("west: %+v", west)
	}
	if paths := NewPaths(report); paths[0].Cluster != "north" || paths[0].Why == "" {
		t.Errorf("trouble comes first, with its reason: %+v", paths)
	}
	away := &status.Report{Broker: status.Broker{Problem: "no answer"}, Clusters: []status.Member{{ID: "west", State: status.Unknown}}}
	kept := NewClusters(away, facts, got)
	if len(kept) != 3 || kept[0].State != status.Unknown || kept[2].Pool == nil {
		t.Errorf("without the broker: %+v", kept)
	}
}

func snapshot(seq int64, rows ...*Row) *Snapshot {
	s := &Snapshot{Seq: seq, At: noon.Add(time.Duration(seq) * time.Second), ClusterSet: "prod", Rows: rows}
	for _, id := range []string{"east", "north", "south", "west"} {
		s.Clusters = append(s.Clusters, Cluster{Member: status.Member{ID: id, State: status.Alive}})
	}
	return s
}

func texts(entries []Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, string(e.Severity)+" "+e.Text)
	}
	return out
}

func TestObserveServices(t *testing.T) {
	in, report, columns := fixture()
	healthy := NewRow(&in, &report, columns, nil)
	in.Clusters[1].Imported = in.Clusters[1].Imported[1:]
	report.Findings = []explain.Finding{{Code: "stale-endpoints-dropped", Title: "endpoints are left out", Severity: explain.Warn, Cluster: "west"}}
	troubled := NewRow(&in, &report, columns, healthy)
	before, after := snapshot(1, healthy), snapshot(2, troubled)
	want := []string{
		"warn shop/web: endpoints are left out in west (stale-endpoints-dropped)",
		"note west sends shop/web to north, before to east, north",
	}
	if diff := cmp.Diff(want, texts(NewObserver().Observe(before, after))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = []string{
		"good shop/web: stale-endpoints-dropped in west is over",
		"note west sends shop/web to east, north, before to north",
	}
	if diff := cmp.Diff(want, texts(NewObserver().Observe(after, before))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := texts(NewObserver().Observe(snapshot(1), before)); !cmp.Equal(got, []string{"note shop/web is new in the clusterset"}) {
		t.Errorf("%q", got)
	}
	if got := texts(NewObserver().Observe(before, snapshot(2))); !cmp.Equal(got, []string{"note shop/web is no longer in the clusterset"}) {
		t.Errorf("%q", got)
	}
}

// Findings of a cluster that does not answer are not over, and neither is any when the broker does
// not answer.
func TestObserveNothingIsOver(t *testing.T) {
	row := &Row{Name: "shop/web", Groups: []Group{{Code: "import-missing", Clusters: []string{"west"}}, {Code: "no-clusterset-ip"}}}
	before, after := snapshot(1, row), snapshot(2, &Row{Name: "shop/web", Groups: row.Groups[1:]})
	if got := texts(NewObserver().Observe(before, after)); !cmp.Equal(got, []string{"good shop/web: import-missing in west is over"}) {
		t.Errorf("%q", got)
	}
	after.Clusters[3].Problem = "timeout"
	if got := texts(NewObserver().Observe(before, after)); !cmp.Equal(got, []string{"fail the API server of west does not answer: timeout"}) {
		t.Errorf("%q", got)
	}
	away := snapshot(2, &Row{Name: "shop/web"})
	away.Broker.Problem = "timeout"
	if got := texts(NewObserver().Observe(before, away)); !cmp.Equal(got, []string{"fail the broker does not answer: timeout"}) {
		t.Errorf("%q", got)
	}
}

// A finding that was there before a cluster or the broker stopped to answer is not new afterwards.
// One that ended meanwhile is over.
func TestObserveFindingsOutliveOutages(t *testing.T) {
	groups := []Group{{Code: "import-missing", Clusters: []string{"east", "west"}}, {Code: "no-clusterset-ip", Title: "it has no address"}}
	good := snapshot(1, &Row{Name: "shop/web", Groups: groups})
	cut := snapshot(2, &Row{Name: "shop/web", Groups: []Group{{Code: "import-missing", Clusters: []string{"east"}}, groups[1]}})
	cut.Clusters[3].Problem = "timeout"
	away := snapshot(3, &Row{Name: "shop/web"})
	away.Broker.Problem = "timeout"
	back := snapshot(4, &Row{Name: "shop/web", Groups: groups[:1]})
	o := NewObserver()
	for i, step := range []struct {
		before, after *Snapshot
		want          []string
	}{
		{good, cut, []string{"fail the API server of west does not answer: timeout"}},
		{cut, away, []string{"fail the broker does not answer: timeout", "good the API server of west answers"}},
		{away, back, []string{"good the broker answers", "good shop/web: no-clusterset-ip is over"}},
		{back, snapshot(5, &Row{Name: "shop/web"}), []string{"good shop/web: import-missing in east, west is over"}},
	} {
		if diff := cmp.Diff(step.want, texts(o.Observe(step.before, step.after))); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// A new service passes through findings on its way. Those that stay are said once it had its time.
func TestObserveNewService(t *testing.T) {
	missing := []Group{{Code: "import-missing", Title: "it is not imported", Severity: explain.Fail, Clusters: []string{"west"}}}
	rows := map[int64][]*Row{
		1: nil, 2: {{Name: "shop/a", Groups: missing}, {Name: "shop/b", Groups: missing}}, 3: {{Name: "shop/a"}, {Name: "shop/b", Groups: missing}},
		5: {{Name: "shop/a"}, {Name: "shop/b", Groups: missing}}, 6: {{Name: "shop/a"}, {Name: "shop/b"}},
	}
	want := map[int64][]string{
		2: {"note shop/a is new in the clusterset", "note shop/b is new in the clusterset"},
		5: {"fail shop/b: it is not imported in west (import-missing)"}, 6: {"good shop/b: import-missing in west is over"},
	}
	o, before := NewObserver(), snapshot(1)
	for _, seq := range []int64{2, 3, 5, 6} {
		after := snapshot(seq, rows[seq]...)
		if diff := cmp.Diff(want[seq], texts(o.Observe(before, after))); diff != "" {
			t.Errorf("snapshot %d (-want +got):\n%s", seq, diff)
		}
		before = after
	}
}

func TestObserveManyServices(t *testing.T) {
	var before, after []*Row
	for _, name := range []string{"shop/a", "shop/b", "shop/c", "shop/d"} {
		before = append(before, &Row{Name: name, Exporters: []int{0}})
		after = append(after, &Row{Name: name, Exporters: []int{0, 1}})
	}
	got := texts(NewObserver().Observe(snapshot(1, before...), snapshot(2, after...)))
	if !cmp.Equal(got, []string{"note north exports 4 services"}) {
		t.Errorf("%q", got)
	}
}

func TestObserveClusters(t *testing.T) {
	path := func(state objects.ReachState) []Path {
		reached := objects.Reachability{Cluster: "east", Family: corev1.IPv4Protocol, State: state}
		return []Path{{Path: status.Path{From: "west", Reachability: reached}}}
	}
	before, after := snapshot(1), snapshot(2)
	before.Paths, after.Paths = path(objects.Reachable), path(objects.Unreachable)
	after.Broker.Problem = "connection refused"
	after.Clusters[0].State = status.Silent
	after.Clusters[1].Problem = "timeout"
	after.Clusters[2].Checks = []doctor.Result{{Code: "agent", Status: doctor.Fail, Detail: "0 of 2 pods are ready"}}
	after.Clusters = append(after.Clusters[:3], Cluster{Member: status.Member{ID: "zoo", State: status.Invited}})
	want := []string{
		"fail the broker does not answer: connection refused",
		"fail the heartbeat of east has stopped",
		"fail the API server of north does not answer: timeout",
		"fail agent in south: 0 of 2 pods are ready",
		"note cluster zoo was added (invited)",
		"warn cluster west is no longer a member",
		"fail east unreachable from west (IPv4)",
	}
	if diff := cmp.Diff(want, texts(NewObserver().Observe(before, after))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = []string{
		"good the broker answers", "good the heartbeat of east reaches the broker", "good the API server of north answers",
		"good agent in south is over", "note cluster west was added (alive)", "warn cluster zoo is no longer a member",
		"good east reachable from west (IPv4)",
	}
	if diff := cmp.Diff(want, texts(NewObserver().Observe(after, before))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A cluster that was never read has the name of its context: it does not go when its id is known.
func TestObserveFirstRead(t *testing.T) {
	before, after := snapshot(1), snapshot(2)
	before.Clusters = append(before.Clusters, Cluster{Member: status.Member{ID: "context-of-zoo", Problem: "timeout"}})
	after.Clusters = append(after.Clusters, Cluster{Member: status.Member{ID: "zoo", State: status.Alive}})
	if got := texts(NewObserver().Observe(before, after)); !cmp.Equal(got, []string{"note cluster zoo was added (alive)"}) {
		t.Errorf("%q", got)
	}
}

// A difference leads from one snapshot to the next, and heartbeats and latencies are none.
func TestDiffAndApply(t *testing.T) {
	a, b, c := &Row{Name: "shop/a", Cells: "AAAA"}, &Row{Name: "shop/b", Cells: "AAAA"}, &Row{Name: "shop/c", Cells: "AAAA"}
	before, after := snapshot(1, a, b), snapshot(2, &Row{Name: "shop/a", Cells: "EAAA"}, c)
	before.Paths = []Path{{Path: status.Path{From: "west", Reachability: objects.Reachability{Cluster: "east", Latency: 1}}}}
	after.Paths = []Path{{Path: status.Path{From: "west", Reachability: objects.Reachability{Cluster: "east", Latency: 2}}}}
	after.Clusters[0].LastHeartbeat = &noon
	d := Diff(before, after)
	if len(d.Rows) != 2 || !cmp.Equal(d.Gone, []string{"shop/b"}) || d.Full != nil || d.Paths != nil || len(d.Clusters) != 0 || d.Broker != nil {
		t.Errorf("%+v", d)
	}
	if diff := cmp.Diff(after.Rows, before.Apply(&d).Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	after.Clusters[1].State = status.Silent
	after.Broker.Problem = "away"
	d = Diff(before, after)
	if got := before.Apply(&d); got.Clusters[1].State != status.Silent || got.Broker.Problem != "away" || before.Clusters[1].State != status.Alive {
		t.Errorf("%+v", got)
	}
	same := snapshot(2, a, b)
	if d := Diff(snapshot(1, a, b), same); !d.Empty() {
		t.Errorf("%+v", d)
	}
	other := snapshot(2, a)
	other.Clusters = other.Clusters[1:]
	if d := Diff(before, other); d.Full == nil {
		t.Error("other columns need a full snapshot")
	}
}

func TestHistory(t *testing.T) {
	h := NewHistory(snapshot(0))
	row := func(cells string) *Row { return &Row{Name: "shop/web", Cells: cells} }
	before := h.Now()
	for seq, cells := range []string{"", "EAAA", "IAAA", "MAAA"} {
		if seq == 0 {
			continue
		}
		after := snapshot(int64(seq), row(cells))
		d := Diff(before, after)
		d.Entries = []Entry{{Seq: d.Seq, At: d.At, Text: cells}}
		h.Add(d, after)
		before = after
	}
	for seq, want := range map[int64]string{1: "EAAA", 2: "IAAA", 3: "MAAA", 9: "MAAA"} {
		if s, ok := h.At(seq); !ok || s.Rows[0].Cells != want {
			t.Errorf("at %d: %+v", seq, s)
		}
	}
	if deltas, ok := h.Since(1); !ok || len(deltas) != 2 || deltas[0].Seq != 2 {
		t.Errorf("since 1: %+v", deltas)
	}
	if _, ok := h.Since(7); ok {
		t.Error("a viewer of another server has a number of the future")
	}
	late := snapshot(4, row("EAAA"))
	late.At = noon.Add(MinHistory + time.Hour)
	h.Add(Diff(before, late), late)
	if _, ok := h.At(1); ok || h.Base.Seq != 3 || len(h.Deltas) != 1 {
		t.Errorf("what is too old is forgotten: base %d, %d differences", h.Base.Seq, len(h.Deltas))
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := NewHistory(snapshot(0))
	rows := make([]*Row, MaxChanges/2)
	for i := range rows {
		rows[i] = &Row{Name: "shop/web"}
	}
	for seq := int64(1); seq <= 4; seq++ {
		h.Add(Delta{Seq: seq, At: noon, Rows: rows}, snapshot(seq))
	}
	if len(h.Deltas) != 1 {
		t.Errorf("%d differences are kept", len(h.Deltas))
	}
	h.Add(Delta{Seq: 5, At: noon, Rows: rows, Entries: []Entry{{At: noon.Add(-time.Minute), Text: "earlier"}, {At: noon, Text: "now"}}}, snapshot(5))
	h.Add(Delta{Seq: 6, At: noon, Rows: rows, Entries: slices.Repeat([]Entry{{At: noon}}, MaxEntries-1)}, snapshot(6))
	if got := h.Entries(); len(got) != MaxEntries || got[0].Text != "now" {
		t.Errorf("the timeline outlives the differences, within its own bounds: %d entries, the first is %+v", len(got), got[0])
	}
	h.Add(Delta{Seq: 7, At: noon.Add(MinHistory + time.Hour)}, snapshot(7))
	if got := h.Entries(); len(got) != 0 {
		t.Errorf("%d old entries are kept", len(got))
	}
}

func TestSaveAndOpen(t *testing.T) {
	h := NewHistory(snapshot(1))
	after := snapshot(2, &Row{Name: "shop/web", Cells: "EAAA", Sends: "AAAA", Groups: []Group{{Code: "x", Detail: "token eyJsecret"}}})
	d := Diff(h.Now(), after)
	d.Entries = NewObserver().Observe(h.Now(), after)
	h.Add(d, after)
	var file bytes.Buffer
	saved := &File{Version: "v1", SavedAt: noon, History: h, Reports: map[string]explain.Report{"shop/web": {Name: "web"}}}
	if err := saved.Write(&file, func(s string) string { return strings.ReplaceAll(s, "eyJsecret", "(removed)") }); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(&file)
	if err != nil {
		t.Fatal(err)
	}
	row := got.History.Now().Row("shop/web")
	if row == nil || row.Cells != "EAAA" || row.Groups[0].Detail != "token (removed)" || got.Reports["shop/web"].Name != "web" {
		t.Errorf("%+v", row)
	}
	if len(got.History.Entries()) == 0 {
		t.Error("the timeline is missing")
	}
	for name, content := range map[string]string{"text": "hello", "empty": ""} {
		if _, err := ReadFile(strings.NewReader(content)); err == nil {
			t.Errorf("%s is opened", name)
		}
	}
}

func TestOtherFormats(t *testing.T) {
	var file bytes.Buffer
	f := &File{Version: "v9", History: NewHistory(snapshot(1))}
	if err := f.Write(&file, func(s string) string { return strings.ReplaceAll(s, Format, "seamark-ui/v9") }); err != nil {
		t.Fatal(err)
	}
	_, err := ReadFile(&file)
	if err == nil || err.Error() != `it has the format "seamark-ui/v9", and this version of seamark reads seamark-ui/v1: open it with seamark v9` {
		t.Errorf("%v", err)
	}
}

func TestEntriesOfThePast(t *testing.T) {
	e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	e.Status.Conditions = []metav1.Condition{
		{Type: "Valid", Status: metav1.ConditionFalse, Reason: "NoService", LastTransitionTime: metav1.NewTime(noon)},
		{Type: "Conflict", Status: metav1.ConditionFalse, Reason: "NoConflicts", LastTransitionTime: metav1.NewTime(noon)},
		{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-2 * time.Hour))},
		{Type: "Other", Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(noon)},
	}
	want := []string{"warn east: export of shop/web has Valid=False (NoService)", "good east: export of shop/web has Conflict=False (NoConflicts)"}
	if diff := cmp.Diff(want, texts(FromExport("east", e, noon.Add(-time.Hour)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	event := &corev1.Event{
		Reason: "AddressRefused", Message: "127.0.0.1 is loopback", Type: corev1.EventTypeWarning, EventTime: metav1.NewMicroTime(noon),
		InvolvedObject: corev1.ObjectReference{Kind: "ServiceImport", Namespace: "shop", Name: "web"},
	}
	got, ok := FromEvent("west", event, noon.Add(-time.Hour))
	if !ok || got.Text != "west: AddressRefused shop/web: 127.0.0.1 is loopback" || got.Severity != explain.Warn || got.Service != "shop/web" {
		t.Errorf("%+v", got)
	}
	if _, ok := FromEvent("west", event, noon.Add(time.Hour)); ok {
		t.Error("an old event counts")
	}
}
