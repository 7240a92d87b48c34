package member

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// due reads all leases that are due, each second, and returns how often each was.
func (w *watcher) due(seconds int, members []string, reached ...string) map[string]int {
	reads := map[string]int{}
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.l.Observe("me", renewedAt(w.now), w.now)
		isReached := func(cluster string) bool { return slices.Contains(reached, cluster) }
		for _, cluster := range w.l.Due(members, isReached, 5*time.Second, w.now) {
			reads[cluster]++
			renewal := renewedAt(w.now)
			if lease := w.l.leases[cluster]; lease != nil && cluster == "dead" {
				renewal = lease.LastRenewal
			}
			w.l.Observe(cluster, renewal, w.now)
		}
		update(w.l, w.now)
	}
	return reads
}

func TestLeasesInDoubtAreReadOftenAndOthersInTurn(t *testing.T) {
	w := newWatcher(t)
	members := []string{"me", "east", "west", "north", "silent"}
	reads := w.due(60, members, "east", "west", "north")
	if reads["silent"] != 12 || reads["east"] != 4 || reads["west"] != 4 || reads["north"] != 4 || reads["me"] != 0 {
		t.Errorf("in a minute, leases were read %v times", reads)
	}
	w.wantStale()

	// A member that demotes a cluster raises doubt about it, until it is seen to renew.
	w.l.ObserveDemoted("west", []string{"east", "unknown"}, w.now)
	if reads := w.due(60, members, "east", "west", "north"); reads["east"] < 4 || reads["east"] > 6 || reads["unknown"] != 0 {
		t.Errorf("in a minute, leases were read %v times", reads)
	}
}

// A cluster that answers here and is demoted by another member is judged as soon as that is known.
func TestListedClusterIsJudgedAtOnce(t *testing.T) {
	w := newWatcher(t)
	members := make([]string, 50)
	for i := range members {
		members[i] = fmt.Sprintf("member-%d", i)
	}
	members = append(members, "dead")
	w.due(200, members, members...)
	w.wantStale() // its lease was read once
	w.l.ObserveDemoted("member-7", []string{"dead"}, w.now)
	w.due(2, members, members...)
	w.wantStale("dead")
	w.l.JudgeDemoted(w.now)
	w.wantDemoted("dead")
}

// A cluster that stops answering is asked about at once. That it has not renewed its lease since it
// was read long ago is proof enough.
func TestClusterThatStopsAnsweringIsJudgedByItsLease(t *testing.T) {
	w := newWatcher(t)
	members := []string{"dead", "east"}
	w.due(6, members, "dead", "east")
	w.due(15, members, "east")
	w.wantStale()
	w.due(1, members, "east") // 21 s after its lease was read first
	w.wantStale("dead")
	// It is read although it answers again, until it renews.
	if reads := w.due(60, members, "dead", "east"); reads["dead"] != 12 {
		t.Errorf("in a minute, leases were read %v times", reads)
	}
}

// What is not read proves nothing, however long ago the last renewal was.
func TestLeaseThatIsNotReadIsNotJudged(t *testing.T) {
	w := newWatcher(t)
	w.due(10, []string{"dead"})
	for range 60 {
		w.now = w.now.Add(time.Second)
		w.l.Observe("me", renewedAt(w.now), w.now)
		update(w.l, w.now)
	}
	w.wantStale()
	w.due(1, []string{"dead"})
	w.wantStale("dead")
}

// Only clusters that publish something here are asked about. A stale one is, until it is known that
// it left.
func TestClusterThatPublishesNothingIsForgotten(t *testing.T) {
	w := newWatcher(t)
	w.due(30, []string{"dead", "east"})
	w.wantStale("dead")
	w.due(10, nil)
	if ages := w.l.LeaseAges(w.now); len(ages) != 2 { // its own and that of the stale cluster
		t.Errorf("known are %v", ages)
	}
	w.l.Forget("dead", w.now)
	w.due(2, nil)
	w.wantStale()
	if ages := w.l.LeaseAges(w.now); len(ages) != 1 {
		t.Errorf("known are %v", ages)
	}
}

// A broker that needs longer for an answer than there is between two readings is waited for.
// Members would judge nothing while it is slow otherwise.
func TestLeasesOfASlowBrokerAreRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(1200 * time.Millisecond):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	defer server.Close()
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	broker, err := client.New(&rest.Config{Host: server.URL}, client.Options{Mapper: kinds})
	if err != nil {
		t.Fatal(err)
	}
	reader := &LeaseReader{Client: broker, Namespace: "seamark-broker", Every: time.Millisecond}
	if err := reader.readDue(t.Context()); err != nil || !reader.Listed() {
		t.Errorf("leases read: %t, error %v", reader.Listed(), err)
	}
}
