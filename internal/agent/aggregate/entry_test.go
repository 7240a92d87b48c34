package aggregate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func TestEntryPatch(t *testing.T) {
	for name, test := range map[string]struct {
		listed []string
		want   string
	}{
		"none is listed":    {nil, ""},
		"others are listed": {[]string{"b", "c"}, `[{"op":"add","path":"/status/clusters/-","value":{"cluster":"a"}}]`},
		"it is listed": {
			[]string{"b", "a"}, `[{"op":"test","path":"/status/clusters/1/cluster","value":"a"},{"op":"remove","path":"/status/clusters/1"}]`,
		},
		"it alone is listed": {
			[]string{"a"}, `[{"op":"test","path":"/status/clusters/0/cluster","value":"a"},{"op":"remove","path":"/status/clusters/0"}]`,
		},
	} {
		if got := string(entryPatch("a", test.listed)); got != test.want && !jsonpatch.Equal([]byte(got), []byte(test.want)) {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestExportersTakeTurns(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("m%02d", i))
	}
	for name, test := range map[string]struct {
		id                string
		listed, exporters []string
		ahead             int
		stale             []string
	}{
		"the only one that joins":    {"m99", many[:99], many, 0, nil},
		"the first of all that join": {"m00", nil, many, 0, nil},
		"several join together":      {"m02", nil, many, 0, nil},
		"the next one waits":         {"m03", nil, many, 1, nil},
		"the last of all that join":  {"m99", nil, many, 97, nil},
		"half have joined":           {"m99", many[:50], many, 47, nil},
		"the only one that leaves":   {"m00", many, many[1:], 0, nil},
		"the last in the list":       {"m99", many, nil, 0, nil},
		"the first in the list":      {"m00", many, nil, 99, nil},
		"half leave":                 {"m00", many, many[50:], 49, nil},
		"stale ones do not join":     {"m99", nil, many, 47, many[:50]},
		"nor do they leave":          {"m00", many, nil, 49, many[50:]},
	} {
		if got := ahead(test.id, test.listed, test.exporters, setOf(test.stale)); got != test.ahead {
			t.Errorf("%s: %d are ahead, want %d", name, got, test.ahead)
		}
	}
}

func TestWaitingForTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waitingTurns
		want := func(ahead int, remaining time.Duration) {
			t.Helper()
			if got := w.remaining(web, ahead); got != remaining {
				t.Errorf("with %d ahead: %v remain, want %v", ahead, got, remaining)
			}
		}
		want(0, 0)
		want(10, 10*perExporter)
		time.Sleep(stallTime - time.Millisecond)
		want(9, 9*perExporter) // progress
		time.Sleep(stallTime - time.Millisecond)
		want(9, 9*perExporter)
		time.Sleep(time.Millisecond)
		want(9, (9-together)*perExporter) // the first of those ahead may not be running
		want(8, (8-together)*perExporter)
		time.Sleep(2 * stallTime)
		want(8, 0)
		w.pause(web, time.Second)
		want(0, time.Second)
		time.Sleep(time.Second)
		want(0, 0)
		w.end(web)
		want(1_000_000, maxTurns)
	})
}

// An API server that does not answer for a minute does not get the entries of all exporters at
// once.
func TestASlowServerIsNotOverrun(t *testing.T) {
	start, writing := time.Unix(0, 0), 0
	for i := range 500 {
		if p := (place{ahead: i, since: start}).moved(i, start.Add(time.Minute)); p.wait(start.Add(time.Minute)) == 0 {
			writing++
		}
	}
	if writing > 40 {
		t.Errorf("%d exporters write", writing)
	}
}

func TestEntryConflicts(t *testing.T) {
	kind, path := schema.GroupKind{Kind: "ServiceImport"}, field.NewPath("status", "clusters").Index(1)
	notApplied := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{}, "", "test failed", 0, false)
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"the list was written":      {apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("modified")), true},
		"the patch does not apply":  {notApplied, true},
		"it is listed already":      {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Duplicate(path, "a")}), true},
		"the entry is invalid":      {apierrors.NewInvalid(kind, "web", field.ErrorList{field.TooLong(path, "a", 1)}), false},
		"the policy refuses it":     {apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("policy")), false},
		"the server is unreachable": {errors.New("connection refused"), false},
	} {
		if got := isEntryConflict(test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// N exporters add themselves with N writes. Each of them is reconciled once for its own entry, and
// not for those of others.
func TestEntriesOfOthersAreNoReasonToReconcile(t *testing.T) {
	matters := Hooks("a").Matters
	si := func(clusters ...string) *mcsv1beta1.ServiceImport {
		out := written(record("a", 1))
		out.Status.Clusters = nil
		for _, c := range clusters {
			out.Status.Clusters = append(out.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: c})
		}
		return out
	}
	changed := func(change func(*mcsv1beta1.ServiceImport)) *mcsv1beta1.ServiceImport {
		out := si("b", "c")
		change(out)
		return out
	}
	for name, test := range map[string]struct {
		before, after *mcsv1beta1.ServiceImport
		want          bool
	}{
		"another joins":           {si("b", "c"), si("b", "c", "d"), false},
		"another leaves":          {si("b", "c", "d"), si("b", "c"), false},
		"it joins":                {si("b", "c"), si("b", "c", "a"), true},
		"it leaves":               {si("a", "b", "c"), si("b", "c"), true},
		"the last but one leaves": {si("a", "b"), si("a"), true},
		"the last leaves":         {si("b"), si(), true},
		"the spec changes":        {si("b", "c"), changed(func(s *mcsv1beta1.ServiceImport) { s.Generation++ }), true},
		"the writer changes":      {si("b", "c"), changed(func(s *mcsv1beta1.ServiceImport) { s.Labels[v1alpha1.LabelWrittenBy] = "b" }), true},
		"it is another object":    {si("b", "c"), changed(func(s *mcsv1beta1.ServiceImport) { s.UID = "new" }), true},
		"it is being deleted": {
			si("b", "c"), changed(func(s *mcsv1beta1.ServiceImport) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), true,
		},
	} {
		if got := matters(test.before, test.after); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An exporter cares only whether it is listed itself, and keeps the order of the others.
func TestTheOrderOfExportersDoesNotMatter(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("a", 3), record("b", 2), record("c", 1)}
	existing := written(records...)
	existing.Status.Clusters = clusterList([]string{"c", "a"}, "b", true)
	for _, id := range []string{"a", "b", "c"} {
		if plan := decide(Input{ClusterID: id, Service: web, Records: records, Existing: existing}); !plan.Empty() {
			t.Errorf("%s: %+v", id, plan)
		}
	}
	existing.Status.Clusters = clusterList([]string{"c"}, "a", true)
	want := decide(Input{ClusterID: "b", Service: web, Records: records, Existing: existing}).Want
	if got := clusterNames(want); !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("%v", got)
	}
}

// If the exporter with precedence does not write the aggregate, the others step in one after
// another, the slower the more they are.
func TestManyExportersDoNotTakeOverTogether(t *testing.T) {
	var records []*v1alpha1.ExportRecord
	for i := range 500 {
		records = append(records, record(fmt.Sprintf("m%03d", i), 500-i))
	}
	var delays []time.Duration
	for _, r := range records[1:] {
		delays = append(delays, decide(Input{ClusterID: string(r.Spec.ClusterID), Service: web, Records: records}).Delay)
	}
	slices.Sort(delays)
	if spread := delays[len(delays)-1] - delays[0]; spread < 10*time.Second {
		t.Errorf("the delays lie within %v", spread)
	}
	for i := range len(delays) - 25 {
		if delays[i+25]-delays[i] < 100*time.Millisecond {
			t.Errorf("25 exporters write between %v and %v", delays[i], delays[i+25])
		}
	}
}
