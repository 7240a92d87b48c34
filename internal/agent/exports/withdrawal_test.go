package exports

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

var shopWeb = types.NamespacedName{Namespace: "shop", Name: "web"}

// guard returns Withdrawals that count this share of missing services, with this CRD.
func guard(share withdrawal.Share, crd *metav1.PartialObjectMetadata) *Withdrawals {
	return &Withdrawals{
		Hold:    10 * time.Minute,
		Missing: withdrawal.Reading[withdrawal.Share]{Read: func(context.Context) (withdrawal.Share, error) { return share, nil }},
		Kind: &withdrawal.Reading[*metav1.PartialObjectMetadata]{
			Read: func(context.Context) (*metav1.PartialObjectMetadata, error) { return crd, nil },
		},
	}
}

func crdCreated(at time.Time) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}}
}

func TestWhichWithdrawalsAreHeld(t *testing.T) {
	most, few := withdrawal.Share{Missing: 4, Total: 6}, withdrawal.Share{Missing: 2, Total: 6}
	before, after := crdCreated(created.Add(-time.Hour)), crdCreated(created.Add(time.Hour))
	deleting := crdCreated(created.Add(-time.Hour))
	deleting.DeletionTimestamp = &created
	export := exported().Export
	exportDeleted := func(w *Withdrawals) { w.ExportChanged(export, true) }
	serviceDeleted := func(w *Withdrawals) { w.ServiceChanged(exported().Service, true) }
	for name, test := range map[string]struct {
		share   withdrawal.Share
		crd     *metav1.PartialObjectMetadata
		missing string
		event   func(*Withdrawals)
		held    bool
	}{
		"most exports are missing":                       {most, before, partExport, nil, true},
		"few exports are missing":                        {few, before, partExport, nil, false},
		"most Services are missing":                      {most, before, partService, nil, true},
		"a user deleted the export":                      {most, before, partExport, exportDeleted, false},
		"a user deleted the Service":                     {most, before, partService, serviceDeleted, false},
		"a user deleted the Service, the export is lost": {most, before, partExport, serviceDeleted, true},
		"the CRD is being deleted":                       {few, deleting, partExport, exportDeleted, true},
		"the CRD is gone":                                {few, nil, partExport, exportDeleted, true},
		"the CRD is back":                                {few, after, partExport, exportDeleted, true},
		"the CRD is gone, but a Service was deleted":     {most, nil, partService, serviceDeleted, false},
		"it is withdrawn for another reason":             {most, before, "", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, record := guard(test.share, test.crd), &v1alpha1.ExportRecord{}
				if test.event != nil {
					test.event(w)
				}
				judge := func() hold {
					t.Helper()
					h, err := w.judge(t.Context(), shopWeb, record, test.missing, time.Now())
					if err != nil {
						t.Fatal(err)
					}
					return h
				}
				time.Sleep(time.Millisecond)
				h := judge()
				if undecided := h.keep && h.since.IsZero(); undecided {
					time.Sleep(h.recheck)
					h = judge()
				} else if h.keep && h.recheck != w.Hold {
					t.Errorf("held for %v", h.recheck)
				}
				if h.keep != test.held || (w.Held() == 1) != test.held {
					t.Fatalf("%+v, held: %d", h, w.Held())
				}
				if !test.held {
					return
				}
				record = heldChanges(Input{}, published{record: record}, h).Update[0].(*v1alpha1.ExportRecord)
				// The next process reads from the record since when.
				w = guard(few, test.crd)
				time.Sleep(4 * time.Minute)
				if again := judge(); !again.keep || !again.until.Equal(h.until.Truncate(time.Second)) || w.Held() != 1 {
					t.Errorf("after a restart: %+v, before: %+v", again, h)
				}
				time.Sleep(6 * time.Minute)
				if end := judge(); end.keep || w.Held() != 0 {
					t.Errorf("it is held for ever: %+v", end)
				}
			})
		})
	}
}

// While the CRD cannot be read, nothing is decided.
func TestWithdrawalWaitsForTheCRD(t *testing.T) {
	w := guard(withdrawal.Share{}, nil)
	away := errors.New("the API server is away")
	w.Kind.Read = func(context.Context) (*metav1.PartialObjectMetadata, error) { return nil, away }
	w.ExportChanged(exported().Export, true)
	if _, err := w.judge(t.Context(), shopWeb, &v1alpha1.ExportRecord{}, partExport, time.Now()); !errors.Is(err, away) {
		t.Errorf("the error is %v", err)
	}
}

func TestMissingPart(t *testing.T) {
	noService := exported(func(in *Input) { in.Service = nil })
	deleted := exported(func(in *Input) { in.Export.DeletionTimestamp = &created })
	for want, in := range map[string]Input{partExport: {}, partService: noService} {
		if got := missingPart(in, Decide(in)); got != want {
			t.Errorf("%q is missing, want %q", got, want)
		}
	}
	for _, in := range []Input{exported(), deleted} {
		if got := missingPart(in, Decide(in)); got != "" {
			t.Errorf("%q is missing", got)
		}
	}
}

// The endpoints of a held service follow its Service, unless that has none or the export's weight
// would be lost.
func TestEndpointsOfAHeldService(t *testing.T) {
	in := exported()
	plan := Decide(in)
	have := published{record: plan.Record, slices: Slices(in, merge.ModeClusterSetIP)}
	for name, test := range map[string]struct {
		change func(*Input)
		writes bool
	}{
		"unchanged":  {func(*Input) {}, false},
		"a new pod":  {func(in *Input) { in.Slices[0].Endpoints[0].Addresses = []string{"10.1.0.2"} }, true},
		"no pods":    {func(in *Input) { in.Slices = nil }, false},
		"no Service": {func(in *Input) { in.Service = nil }, false},
		"classic mode": {func(in *Input) {
			in.Records[0].Spec.UseClusterSetIP = false
			in.Slices[0].Endpoints[0].Addresses = []string{"10.1.0.2"}
		}, false},
	} {
		in := exported(func(in *Input) { in.Records = []*v1alpha1.ExportRecord{plan.Record.DeepCopy()} })
		test.change(&in)
		in.Export = nil
		if c := heldChanges(in, have, hold{keep: true}); c.Empty() == test.writes {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestHeldExportSaysSo(t *testing.T) {
	in := exported(func(in *Input) { in.Service = nil })
	plan := Decide(in)
	plan.heldUntil = time.Date(2026, 1, 10, 0, 10, 0, 0, time.UTC)
	c := readiness(in.Export, plan, nil)
	const want = "there is no Service web in namespace shop: create it, and it is exported; what was published before stays until " +
		"2026-01-10T00:10:00Z, because most exported Services are gone and no user was seen to delete them"
	if c.Status != metav1.ConditionFalse || c.Reason != "WithdrawalHeld" || c.Message != want {
		t.Errorf("%+v", c)
	}
	if objects.WithdrawalHold != 10*time.Minute {
		t.Error("the docs say that withdrawals are held for ten minutes")
	}
}

// Endpoints stay for a while if their slices disappeared while the watch was interrupted.
func TestLostSlicesStayPublishedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Withdrawals
		slice := fromService(exported().Slices[0])
		in, none := exported(), exported(func(in *Input) { in.Slices = nil })
		have := published{slices: Slices(in, merge.ModeClusterSetIP)}
		want := func(what string, in Input, have published, left time.Duration) {
			t.Helper()
			if got := w.keepSlices(shopWeb, in, have); got != left {
				t.Errorf("%s: they stay for %v, want %v", what, got, left)
			}
		}
		want("a user deleted them", none, have, 0)
		w.SliceLost(slice)
		time.Sleep(time.Second)
		want("lost", none, have, slicesLostDelay-time.Second)
		want("they are back", in, have, 0)
		want("a user deleted them afterwards", none, have, 0)
		w.SliceLost(slice)
		want("there were none", none, published{}, 0)
		w.SliceLost(slice)
		time.Sleep(slicesLostDelay)
		want("for good", none, have, 0)
	})
}

func fromService(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	return s
}
