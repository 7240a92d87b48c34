package member

import (
	"slices"
	"testing"
	"time"
)

// watcher drives a Liveness through time: every step is a second.
type watcher struct {
	*testing.T
	l   *Liveness
	now time.Time
}

func watching(t *testing.T) *watcher {
	return &watcher{t, NewLiveness("me"), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// run lets seconds pass; each second the named clusters renew, and all is judged.
func (w *watcher) run(seconds int, renewing ...string) (changed []string) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		for _, cluster := range renewing {
			w.l.Observe(cluster, w.now, 20*time.Second, w.now)
		}
		changed = append(changed, w.l.Update(w.now)...)
	}
	return changed
}

func (w *watcher) wantStale(clusters ...string) {
	w.Helper()
	var stale []string
	for c := range w.l.Stale() {
		stale = append(stale, c)
	}
	slices.Sort(stale)
	if !slices.Equal(stale, clusters) {
		w.Fatalf("stale: %v, want %v", stale, clusters)
	}
}

func TestClusterThatStopsRenewingTurnsStaleAndComesBack(t *testing.T) {
	w := watching(t)
	w.run(10, "me", "east", "west")
	w.wantStale()
	w.run(19, "me", "west")
	w.wantStale()
	if changed := w.run(3, "me", "west"); !slices.Equal(changed, []string{"east"}) {
		t.Fatalf("changed: %v", changed)
	}
	w.wantStale("east")
	if changed := w.run(1, "me", "west", "east"); !slices.Equal(changed, []string{"east"}) {
		t.Fatalf("changed: %v", changed)
	}
	w.wantStale()
}

// An observer that is cut off hears nobody: that says nothing about the others.
func TestNobodyTurnsStaleWhileTheObserverIsDeaf(t *testing.T) {
	w := watching(t)
	w.run(10, "me", "east", "west")
	w.run(3600)
	w.wantStale()
	if w.l.BrokerWatchIsLive() {
		t.Fatal("live without hearing its own heartbeat")
	}
	w.run(15, "me", "west")
	w.wantStale() // east gets its full time again
	w.run(10, "me", "west")
	w.wantStale("east")
}

func TestWhatWasStaleStaysStaleWhileDeaf(t *testing.T) {
	w := watching(t)
	w.run(5, "me", "east")
	w.run(25, "me")
	w.wantStale("east")
	w.run(600)
	w.wantStale("east")
	w.run(2, "me")
	w.wantStale("east")
	w.run(1, "me", "east")
	w.wantStale()
}

// Clocks of members may be hours apart: only whether a renewal changed matters, never what time it says.
func TestClocksDoNotMatter(t *testing.T) {
	w := watching(t)
	for i := range 40 {
		w.now = w.now.Add(time.Second)
		w.l.Observe("me", w.now, 20*time.Second, w.now)
		w.l.Observe("ahead", w.now.Add(time.Hour), 20*time.Second, w.now)
		w.l.Observe("behind", w.now.Add(-24*time.Hour), 20*time.Second, w.now)
		w.l.Observe("backwards", w.now.Add(-time.Duration(i)*time.Minute), 20*time.Second, w.now)
		w.l.Update(w.now)
		w.wantStale()
	}
	w.run(25, "me")
	w.wantStale("ahead", "backwards", "behind")
}

// A lease seen again unchanged, after a relist say, is no renewal.
func TestRelistIsNoRenewal(t *testing.T) {
	w := watching(t)
	w.run(5, "me", "east")
	frozen := w.now
	for range 30 {
		w.run(1, "me")
		w.l.Observe("east", frozen, 20*time.Second, w.now)
	}
	w.wantStale("east")
}

func TestRemovedClusterIsForgotten(t *testing.T) {
	w := watching(t)
	w.run(2, "me", "east")
	w.run(25, "me")
	w.wantStale("east")
	w.l.Forget("east")
	if changed := w.run(1, "me"); !slices.Equal(changed, []string{"east"}) {
		t.Fatalf("changed: %v", changed)
	}
	w.wantStale()
}
