package imports

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
	"github.com/seamark-dev/seamark/internal/objects"
)

// importFrom returns an import that lists these clusters.
func importFrom(clusters ...string) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Namespace: web.Namespace, Name: web.Name, Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark},
	}}
	for _, c := range clusters {
		si.Status.Clusters = append(si.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: c})
	}
	return si
}

func TestWhichSourcesAreHeld(t *testing.T) {
	type (
		shares  = map[string]withdrawal.Share
		records = []*v1alpha1.ExportRecord
	)
	a, b := record("a", 1), record("b", 2)
	most, few := withdrawal.Share{Missing: 4, Total: 6}, withdrawal.Share{Missing: 2, Total: 6}
	for name, test := range map[string]struct {
		shares  map[string]withdrawal.Share
		records []*v1alpha1.ExportRecord
		deleted []*v1alpha1.ExportRecord
		left    string
		stale   string
		held    []string
	}{
		"nothing is missing":               {shares{}, records{a, b}, nil, "", "", nil},
		"most of one cluster":              {shares{"a": most}, records{b}, nil, "", "", []string{"a"}},
		"most of both":                     {shares{"a": most, "b": most}, nil, nil, "", "", []string{"a", "b"}},
		"few of one and most of the other": {shares{"a": few, "b": most}, nil, nil, "", "", []string{"b"}},
		"few":                              {shares{"a": few, "b": few}, nil, nil, "", "", nil},
		"the deletion was seen":            {shares{"a": most}, records{b}, records{a}, "", "", nil},
		"the cluster left":                 {shares{"a": most}, records{b}, nil, "a", "", nil},
		"the cluster is stale, another one exports": {shares{"a": most}, records{b}, nil, "", "a", nil},
		"the cluster is stale, no other exports":    {shares{"a": most, "b": most}, nil, nil, "", "a", []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := false
				w := &Withdrawals{
					Hold: 10 * time.Minute, BrokerIsLive: func() bool { return live },
					Left: func(_ context.Context, cluster string) (bool, error) { return cluster == test.left, nil },
					Missing: withdrawal.Reading[map[string]withdrawal.Share]{
						Read: func(context.Context) (map[string]withdrawal.Share, error) { return test.shares, nil },
					},
				}
				for _, r := range test.deleted {
					w.RecordChanged(r, true)
				}
				time.Sleep(time.Millisecond)
				si := importFrom("a", "b")
				judge := func() heldImport {
					t.Helper()
					h, err := w.judge(t.Context(), web, si, test.records, map[string]bool{test.stale: true}, time.Now())
					if err != nil {
						t.Fatal(err)
					}
					return h
				}
				h := judge()
				if h.settling > 0 {
					time.Sleep(h.settling)
					h = judge()
				}
				if !slices.Equal(h.Clusters, test.held) || len(w.Held()) != min(1, len(test.held)) || h.settling > 0 {
					t.Fatalf("%+v", h)
				}
				if len(test.held) == 0 {
					return
				}
				// The next process reads from the condition since when.
				meta.SetStatusCondition(&si.Status.Conditions, *heldCondition(h.HeldSources, nil))
				time.Sleep(9 * time.Minute)
				if again := judge(); !again.Until.Equal(h.Until) || again.recheck > time.Minute {
					t.Errorf("it is held until %s, before until %s", again.Until, h.Until)
				}
				time.Sleep(time.Minute + time.Second)
				if cutOff := judge(); len(cutOff.Clusters) == 0 || cutOff.recheck <= 0 {
					t.Errorf("it is not held while the broker is not heard: %+v", cutOff)
				}
				live = true
				if end := judge(); len(end.Clusters) > 0 || len(w.Held()) != 0 {
					t.Errorf("it is held for ever: %+v", end)
				}
			})
		})
	}
}

// A cluster whose record is back is held until its slices can have arrived.
func TestReturningSourceIsHeldForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Withdrawals{Hold: 10 * time.Minute}
		w.setHeld(web, []string{"a", "b"})
		want := func(clusters ...string) {
			t.Helper()
			got, wait := w.returning(web, []*v1alpha1.ExportRecord{record("a", 1), record("c", 1)})
			if !slices.Equal(got, clusters) || wait > recheckHeld {
				t.Errorf("%v return, want %v (%v)", got, clusters, wait)
			}
			w.setHeld(web, []string{"a", "b"})
		}
		time.Sleep(time.Minute)
		want("a")
		time.Sleep(returnDelay - time.Second)
		want("a")
		time.Sleep(time.Second)
		want()
	})
}

// An import with a held cluster follows the others, and says so.
func TestHeldSourceStaysInTheImport(t *testing.T) {
	since := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	in := input([]*v1alpha1.ExportRecord{record("b", 1)}, slice("b", "s", "10.2.0.1"))
	in.Held = HeldSources{Clusters: []string{"a"}, Since: since, Until: since.Add(10 * time.Minute)}
	plan := Decide(in)
	c := meta.FindStatusCondition(plan.Import.Status.Conditions, "WithdrawalHeld")
	const want = "the broker has lost most records of cluster a, and nothing shows that they were withdrawn: " +
		"the endpoints stay until 2026-01-10T00:10:00Z, or until the records are back"
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "RecordsLost" || c.Message != want || !c.LastTransitionTime.Time.Equal(since) {
		t.Errorf("%+v", c)
	}
	if got := plan.Import.Status.Clusters; len(got) != 2 || got[0].Cluster != "a" || got[1].Cluster != "b" || len(plan.Slices) != 1 {
		t.Errorf("clusters %v, %d slices", got, len(plan.Slices))
	}
}

// An import says that its exporters hold withdrawals.
func TestImportOfHeldExports(t *testing.T) {
	held := func(cluster string) *v1alpha1.ExportRecord {
		r := record(cluster, 1)
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AnnotationWithdrawalHeld, "2026-01-10T00:00:00Z")
		return r
	}
	for want, records := range map[string][]*v1alpha1.ExportRecord{
		"most exports of cluster a are gone there, and no user was seen to delete them: what was published stays for a while": {
			held("a"), record("b", 2),
		},
		"most exports of clusters a and b are gone there, and no user was seen to delete them: what was published stays for a while": {
			held("b"), held("a"),
		},
	} {
		c := meta.FindStatusCondition(Decide(input(records)).Import.Status.Conditions, "WithdrawalHeld")
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "HeldByExporter" || c.Message != want {
			t.Errorf("%+v", c)
		}
	}
	if heldCondition(HeldSources{}, []*v1alpha1.ExportRecord{record("a", 1)}) != nil {
		t.Error("a condition although nothing is held")
	}
}
