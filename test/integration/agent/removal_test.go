package agent_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// A member that left or was removed is not stale for the others, so no alert fires. The agent of a
// removed member says so in its metrics and in its readiness.
func TestFormerMembersAreNotStale(t *testing.T) {
	cps := harness.Fresh(t, 3)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	metrics, northMetrics, northProbes := freeAddress(t), freeAddress(t), freeAddress(t)
	east.StartProcess(t, "--metrics-bind-address="+metrics)
	west.StartProcess(t)
	north.StartProcess(t, "--metrics-bind-address="+northMetrics, "--health-probe-bind-address="+northProbes)
	leases := func() (found []string) {
		text := scrape(t, metrics)
		for _, id := range []string{"west", "north"} {
			if _, ok := seriesValue(text, fmt.Sprintf("seamark_lease_age_seconds{cluster=%q}", id)); ok {
				found = append(found, id)
			}
		}
		return found
	}
	ns := fleet.NewNamespace(t, f.Members...)
	for _, m := range []*fleet.Member{west, north} {
		m.Serve(t, fleet.NewService(ns, m.ID), "10.1.0.1")
		m.Export(t, ns, m.ID) // the leases of clusters that export nothing concern no other
	}
	harness.Eventually(t, "east observes both leases", func() error {
		if found := leases(); len(found) != 2 {
			return fmt.Errorf("it observes %v", found)
		}
		return nil
	})
	if removed, ok := seriesValue(scrape(t, northMetrics), "seamark_removed"); !ok || removed != 0 {
		t.Errorf("seamark_removed of a member is %v (found: %t)", removed, ok)
	}
	west.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "of-the-user"}})
	if left, err := brokeradmin.Leave(t.Context(), west.Client); err != nil || !left.Withdrawn {
		t.Fatalf("leave: %+v %v", left, err)
	}
	if _, err := brokeradmin.RemoveMember(t.Context(), f.Admin, objects.DefaultNamespace, "north"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "east observes neither lease", func() error {
		if found := leases(); len(found) > 0 {
			return fmt.Errorf("it observes %v", found)
		}
		return nil
	})
	harness.Eventually(t, "north rests", func() error {
		if removed, ok := seriesValue(scrape(t, northMetrics), "seamark_removed"); !ok || removed != 1 {
			return fmt.Errorf("seamark_removed is %v (found: %t)", removed, ok)
		}
		return nil
	})
	response, err := http.Get("http://" + northProbes + "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusInternalServerError {
		t.Errorf("readiness of a removed member: %d %s %v", response.StatusCode, text, err)
	}
	alive, err := http.Get("http://" + northProbes + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alive.Body.Close() }()
	if alive.StatusCode != http.StatusOK {
		t.Errorf("liveness of a removed member: %s", alive.Status)
	}
	if text := scrape(t, northMetrics); strings.Contains(text, "seamark_broker_connected") || !strings.Contains(text, "seamark_build_info") {
		t.Error("a resting agent has the metrics of a member, or no metrics")
	}
	harness.Consistently(t, "no cluster is stale", 8*time.Second, func() error {
		if stale, ok := seriesValue(scrape(t, metrics), "seamark_stale_clusters"); !ok || stale != 0 {
			return fmt.Errorf("seamark_stale_clusters is %v (found: %t)", stale, ok)
		}
		return nil
	})
}
