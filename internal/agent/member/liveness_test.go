package member

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// watcher advances a Liveness in time: every step is a second.
type watcher struct {
	*testing.T
	l   *Liveness
	now time.Time
}

func newWatcher(t *testing.T) *watcher {
	w := &watcher{t, NewLiveness("me"), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.l.Adopt(nil) // no verdicts are stored yet
	return w
}

func renewedAt(t time.Time) LastRenewal {
	return LastRenewal{Time: t, Duration: 20 * time.Second, Version: t.Unix()}
}

// run lets seconds pass. Each second the named clusters renew, all leases are read, and liveness is
// updated. Without "me" the broker cannot be reached.
func (w *watcher) run(seconds int, renewing ...string) (changed []string) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.renew(renewing...)
		changed = append(changed, update(w.l, w.now)...)
	}
	return changed
}

// renew renews leases, and reads those of all others if this cluster renews its own.
func (w *watcher) renew(clusters ...string) {
	for _, cluster := range clusters {
		w.l.Observe(cluster, renewedAt(w.now), w.now)
	}
	if !slices.Contains(clusters, "me") {
		return
	}
	for cluster, lease := range w.l.leases {
		if cluster != "me" {
			w.l.Observe(cluster, lease.LastRenewal, w.now)
		}
	}
}

// update judges and adopts the verdicts, as the agent does.
func update(l *Liveness, now time.Time) (changed []string) {
	verdicts, changed := l.Judge(now)
	l.Adopt(verdicts)
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

func TestClusterIsStaleUntilItRenewsAgain(t *testing.T) {
	w := newWatcher(t)
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

// An observer that is cut off observes no renewals: that proves nothing about the other clusters.
func TestNoClusterTurnsStaleWhileTheWatchIsDown(t *testing.T) {
	w := newWatcher(t)
	w.run(10, "me", "east", "west")
	w.run(3600)
	w.wantStale()
	if w.l.BrokerWatchIsLive() {
		t.Fatal("live without observing its own renewals")
	}
	w.run(15, "me", "west")
	w.wantStale() // the lease of east lasts its full duration again
	w.run(10, "me", "west")
	w.wantStale("east")
}

func TestStaleClusterStaysStaleWhileTheWatchIsDown(t *testing.T) {
	w := newWatcher(t)
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

// Clocks of members may be hours apart: only whether the renewal time changed matters, not its
// value.
func TestClocksDoNotMatter(t *testing.T) {
	w := newWatcher(t)
	for i := range 40 {
		w.now = w.now.Add(time.Second)
		w.l.Observe("me", renewedAt(w.now), w.now)
		w.l.Observe("ahead", renewedAt(w.now.Add(time.Hour)), w.now)
		w.l.Observe("behind", renewedAt(w.now.Add(-24*time.Hour)), w.now)
		w.l.Observe("backwards", renewedAt(w.now.Add(-time.Duration(i)*time.Minute)), w.now)
		update(w.l, w.now)
		w.wantStale()
	}
	w.run(25, "me")
	w.wantStale("ahead", "backwards", "behind")
}

// A lease received again unchanged, for example after a relist, is no renewal.
func TestRelistIsNoRenewal(t *testing.T) {
	w := newWatcher(t)
	w.run(5, "me", "east")
	frozen := w.now
	for range 30 {
		w.run(1, "me")
		w.l.Observe("east", renewedAt(frozen), w.now)
	}
	w.wantStale("east")
}

// The duration in a lease counts from its renewal, but another cluster cannot make itself live
// forever with it, nor stale at once.
func TestLeaseDurationsAreBelievedWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &State{Liveness: NewLiveness("me")}
		w := &watcher{T: t, l: state.Liveness}
		renew := func(cluster string, seconds int32) {
			state.ObserveLease(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: cluster},
				Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(seconds), RenewTime: ptr.To(metav1.NowMicro())},
			})
		}
		run := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(500 * time.Millisecond)
				renew("me", 20)
				w.now = time.Now()
				w.renew("me")
				update(state.Liveness, time.Now())
			}
		}
		renew("me", 20)
		renew("long", 10000*60*60)
		renew("minute", 60)
		renew("zero", 0)
		run(time.Second)
		w.wantStale()
		run(2 * time.Second)
		w.wantStale("zero")
		run(time.Minute)
		w.wantStale("minute", "zero")
		run(9 * time.Minute)
		w.wantStale("long", "minute", "zero")
	})
}

func TestRemovedClusterIsForgotten(t *testing.T) {
	w := newWatcher(t)
	w.run(2, "me", "east")
	w.run(25, "me")
	w.wantStale("east")
	w.l.Forget("east", w.now)
	if changed := w.run(1, "me"); !slices.Equal(changed, []string{"east"}) {
		t.Fatalf("changed: %v", changed)
	}
	w.wantStale()
}

// A process that takes over knows what was decided before: a cluster that has not renewed since is
// stale at once and since the same time, one that has renewed gets the full duration, and one
// whose lease is gone is forgotten.
func TestVerdictsOutliveTheProcess(t *testing.T) {
	before := newWatcher(t)
	before.run(2, "me", "dead", "back", "gone")
	lastRenewal := before.now
	before.run(25, "me")
	before.wantStale("back", "dead", "gone")
	verdicts, _ := before.l.Judge(before.now)
	data, err := formatVerdicts(verdicts)
	if err != nil {
		t.Fatal(err)
	}
	if verdicts, err = parseVerdicts(data); err != nil {
		t.Fatal(err)
	}
	since := before.l.StaleSince()["dead"]

	after := &watcher{t, NewLiveness("me"), before.now.Add(time.Hour)}
	after.l.Adopt(verdicts)
	after.l.Observe("me", renewedAt(after.now), after.now)
	after.l.Observe("dead", renewedAt(lastRenewal), after.now)
	after.l.Observe("back", renewedAt(lastRenewal.Add(time.Minute)), after.now)
	if changed := update(after.l, after.now); !slices.Equal(changed, []string{"back", "gone"}) {
		t.Fatalf("changed: %v", changed)
	}
	after.wantStale("dead")
	if got := after.l.StaleSince()["dead"]; !got.Equal(since) {
		t.Errorf("stale since %s, want %s", got, since)
	}
	if age := after.l.LeaseAges(after.now)["dead"]; age < time.Hour {
		t.Errorf("the lease is %s old", age)
	}
	after.run(19, "me")
	after.wantStale("dead")
	after.run(3, "me")
	after.wantStale("back", "dead")
	after.run(1, "me", "dead")
	after.wantStale("back")
}

// A verdict holds before this member has renewed its own lease, and a renewal ends it even then: it
// proves that the cluster is alive.
func TestVerdictsHoldBeforeTheFirstRenewal(t *testing.T) {
	w := newWatcher(t)
	w.l.Adopt(map[string]Verdict{"dead": {RenewTime: w.now, Since: w.now}})
	w.l.Observe("dead", renewedAt(w.now), w.now)
	w.run(60)
	w.wantStale("dead")
	w.run(1, "dead")
	w.wantStale()
}

// A lease that is older than the stored verdict is of a broker that was restored while no process
// of this cluster looked. That is no sign of life; the next renewal is.
func TestVerdictsSurviveARestartAndARestoredBroker(t *testing.T) {
	w := newWatcher(t)
	w.l.Adopt(map[string]Verdict{"dead": {RenewTime: w.now, Since: w.now}})
	w.l.Observe("dead", renewedAt(w.now.Add(-time.Hour)), w.now)
	w.run(60)
	w.wantStale("dead")
	setBack := renewedAt(w.now.Add(-2 * time.Hour)) // its clock was
	setBack.Version = w.now.Unix()
	w.l.Observe("dead", setBack, w.now)
	w.run(1)
	w.wantStale()
}

// A broker that is restored from a backup shows older leases. That is no sign of life.
func TestRestoredBrokerRevivesNoCluster(t *testing.T) {
	w := newWatcher(t)
	state := &State{Liveness: w.l}
	w.run(2, "me", "dead")
	observe := func(version string, renewed time.Time) {
		state.ObserveLease(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "dead", ResourceVersion: version},
			Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(renewed))},
		})
	}
	observe("100", w.now)
	w.run(25, "me")
	w.wantStale("dead")
	observe("50", w.now.Add(-time.Minute))
	w.run(5, "me")
	w.wantStale("dead")
	observe("51", w.now)
	w.run(1, "me")
	w.wantStale()
}

func TestParseVerdicts(t *testing.T) {
	verdicts, err := parseVerdicts(map[string]string{
		"east": `{"renewTime":"2026-01-01T00:00:00.123456Z","since":"2026-01-01T00:00:20Z"}`, "west": "yes",
	})
	if err == nil || len(verdicts) != 1 || verdicts["east"].RenewTime.Nanosecond() != 123456000 {
		t.Errorf("%v, %v", verdicts, err)
	}
}
