package member

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// runListing is run with renewals that list what each cluster demotes.
func (w *watcher) runListing(seconds int, lists map[string][]string) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.renew(slices.Sorted(maps.Keys(lists))...)
		for cluster, demotes := range lists {
			w.l.ObserveDemoted(cluster, demotes, w.now)
		}
		update(w.l, w.now)
		w.l.JudgeDemoted(w.now)
	}
}

func (w *watcher) wantDemoted(clusters ...string) {
	w.Helper()
	if got := slices.Sorted(maps.Keys(w.l.Demoted())); !slices.Equal(got, clusters) {
		w.Fatalf("demoted: %v, want %v", got, clusters)
	}
}

func (w *watcher) wantListed(clusters ...string) {
	w.Helper()
	if got := w.l.ToDemote(w.now, []string{"before"}); !slices.Equal(got, clusters) {
		w.Fatalf("listed: %v, want %v", got, clusters)
	}
}

func TestClusterIsDemotedWhenAMemberListsIt(t *testing.T) {
	w := newWatcher(t)
	alive := map[string][]string{"me": nil, "west": nil}
	w.runListing(5, map[string][]string{"me": nil, "west": nil, "east": nil})
	w.runListing(21, alive)
	w.wantStale("east")
	w.runListing(59, alive)
	w.wantListed()
	w.runListing(1, alive)
	w.wantListed("east")
	w.wantDemoted() // not before the list has been observed
	w.runListing(1, map[string][]string{"me": {"east"}, "west": nil})
	w.wantDemoted("east")
}

// One living member's list is enough, and this member repeats it, so that a cluster stays demoted
// when that one dies.
func TestListsOfOtherMembersCount(t *testing.T) {
	w := newWatcher(t)
	w.runListing(5, map[string][]string{"me": nil, "west": nil, "east": nil})
	w.runListing(25, map[string][]string{"me": nil, "west": {"east"}})
	w.wantDemoted("east")
	w.wantListed("east")
	w.runListing(25, map[string][]string{"me": {"east"}})
	w.wantStale("east", "west")
	w.wantDemoted("east")
}

// No member can demote one that is alive, and the list of a stale one does not count.
func TestAMemberCannotDemoteALivingOne(t *testing.T) {
	w := newWatcher(t)
	w.runListing(30, map[string][]string{"me": nil, "east": nil, "west": {"east", "me", "unknown"}})
	w.wantDemoted()
	w.wantListed()
	w.runListing(30, map[string][]string{"me": nil}) // both are stale, and only west demotes east
	w.wantStale("east", "west")
	w.wantDemoted()
}

// A cluster that returns stays demoted for as long as its lease lasts: its records may still be the
// old ones here.
func TestAReturnedClusterIsDemotedForAWhile(t *testing.T) {
	w := newWatcher(t)
	w.runListing(5, map[string][]string{"me": nil, "east": nil})
	w.runListing(90, map[string][]string{"me": {"east"}})
	w.wantDemoted("east")
	w.runListing(15, map[string][]string{"me": {"east"}, "east": nil})
	w.wantStale()
	w.wantDemoted("east")
	w.wantListed("east")
	w.runListing(10, map[string][]string{"me": {"east"}, "east": nil})
	w.wantDemoted()
	w.wantListed()
}

// While this member does not observe its own renewals, silence of others proves nothing.
func TestNothingIsDemotedWhileTheWatchIsDown(t *testing.T) {
	w := newWatcher(t)
	w.runListing(5, map[string][]string{"me": nil, "east": nil})
	w.runListing(30, map[string][]string{"me": nil})
	w.wantStale("east")
	w.runListing(120, nil)
	w.wantListed()
}

// After a restart the lease lists what it listed, until this member has observed the leases.
func TestARestartedMemberListsWhatItListed(t *testing.T) {
	w := newWatcher(t)
	if got := w.l.ToDemote(w.now, []string{"east"}); !slices.Equal(got, []string{"east"}) {
		t.Fatalf("before the leases were observed: %v", got)
	}
	w.l.Observe("east", renewedAt(w.now), w.now)
	w.l.Observe("me", renewedAt(w.now), w.now)
	w.l.ObserveDemoted("me", []string{"east"}, w.now)
	w.l.Adopt(map[string]Verdict{"east": {RenewTime: w.now, Since: w.now.Add(-time.Hour)}})
	update(w.l, w.now)
	w.l.JudgeDemoted(w.now)
	w.wantDemoted("east")
	w.wantListed("east")
	w.runListing(25, map[string][]string{"me": {"east"}, "east": nil})
	w.wantListed()
}
