package bridge

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
)

func TestWithdrawals(t *testing.T) {
	for name, c := range map[string]struct {
		share   withdrawal.Share
		age     time.Duration // since when the service is missing
		deleted bool
		keep    bool
	}{
		"a deletion that the watch showed":     {withdrawal.Share{Missing: 9, Total: 9}, 0, true, false},
		"just missing":                         {withdrawal.Share{Missing: 1, Total: 9}, 0, false, true},
		"one of many, missing for a while":     {withdrawal.Share{Missing: 1, Total: 9}, 5 * time.Second, false, false},
		"most are missing":                     {withdrawal.Share{Missing: 5, Total: 9}, 5 * time.Second, false, true},
		"most are missing, the hold has ended": {withdrawal.Share{Missing: 5, Total: 9}, 2 * time.Minute, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWithdrawals(time.Minute, logr.Discard(), []string{"west"})
			w.count = func(context.Context, string) (withdrawal.Share, error) { return c.share, nil }
			now := time.Now()
			w.begin(withdrawn{web, "west"}, lossOfExport, now.Add(-c.age))
			w.changed(web, "west", record("west", 0), c.deleted)
			keep, recheck, err := w.judge(t.Context(), web, "west", lossOfExport, now)
			if keep != c.keep || err != nil || keep != (recheck > 0) {
				t.Errorf("keep %v, look again in %s (%v), want keep %v", keep, recheck, err, c.keep)
			}
			if keep, _, _ := w.judge(t.Context(), web, "west", lossNone, now); keep {
				t.Error("a service that is not missing is held")
			}
		})
	}
}

func TestLossOf(t *testing.T) {
	for name, test := range map[string]struct {
		published, exported, publishedEndpoints, hasEndpoints bool
		want                                                  loss
	}{
		"never published":      {false, false, false, false, lossNone},
		"new":                  {false, true, false, true, lossNone},
		"as published":         {true, true, true, true, lossNone},
		"no endpoints yet":     {true, true, false, false, lossNone},
		"the export is gone":   {true, false, true, true, lossOfExport},
		"its endpoints are":    {true, true, true, false, lossOfEndpoints},
		"both are":             {true, false, true, false, lossOfExport},
		"export without slice": {true, false, false, false, lossOfExport},
	} {
		if got := lossOf(test.published, test.exported, test.publishedEndpoints, test.hasEndpoints); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A restored broker shows that the endpoints are gone, and seconds later that the exports are: both
// count, and what was counted before the exports vanished does not decide about them.
func TestEndpointsVanishBeforeTheExport(t *testing.T) {
	services := []types.NamespacedName{web, {Namespace: "shop", Name: "a"}, {Namespace: "shop", Name: "b"}}
	published := side{services: services, endpoints: setOf(services)}
	if got := missingOf("west", published, side{services: services}, &withdrawal.Deletions{}); got.Missing != 3 {
		t.Errorf("%d services without endpoints are missing, want 3", got.Missing)
	}
	w, now := newWithdrawals(time.Minute, logr.Discard(), []string{"west"}), time.Now()
	w.begin(withdrawn{web, "west"}, lossOfEndpoints, now.Add(-5*time.Second))
	if a := w.begin(withdrawn{web, "west"}, lossOfExport, now); !a.since.Equal(now) {
		t.Errorf("the absence of the export began %s ago, with that of its endpoints", now.Sub(a.since))
	}
	w.markHeld(withdrawn{web, "west"})
	if a := w.begin(withdrawn{web, "west"}, lossOfEndpoints, now.Add(time.Second)); !a.held || !a.since.Equal(now) {
		t.Errorf("a held absence became %+v", a)
	}
}
