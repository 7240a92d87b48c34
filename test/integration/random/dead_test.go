package random_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// killMember stops the agent of a member that stays dead for longer than its lease. At most one
// member is dead at a time.
func (w *workload) killMember(rt *rapid.T) {
	m := rapid.SampledFrom(w.fleet.Members).Draw(rt, "cluster")
	if w.dead != nil || rapid.IntRange(0, 9).Draw(rt, "now") != 0 {
		return
	}
	m.Stop()
	w.dead, w.deadSince = m, time.Now()
	w.deaths++
}

// reviveMember starts the agent of the dead member again if its lease has expired, or with wait
// when it has.
func (w *workload) reviveMember(wait bool) {
	if w.dead == nil {
		return
	}
	left := time.Until(w.deadSince.Add(w.dead.Agent.LeaseDuration + 2*w.dead.Agent.RenewEvery))
	if left > 0 && !wait {
		return
	}
	time.Sleep(left) // a death has a length
	if err := w.dead.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.dead = nil
}

// served are the clusters with ready endpoints, by service and port.
type served map[string]map[string][]string

func (w *workload) servedIn(m *fleet.Member) (served, error) {
	out := served{}
	for _, ns := range w.namespaces {
		var all discoveryv1.EndpointSliceList
		if err := m.Client.List(context.Background(), &all, client.InNamespace(ns), client.HasLabels{mcsv1beta1.LabelServiceName}); err != nil {
			return nil, err
		}
		for i := range all.Items {
			s := &all.Items[i]
			if !objects.HasReadyEndpoint(s) {
				continue
			}
			service := ns + "/" + s.Labels[mcsv1beta1.LabelServiceName]
			if out[service] == nil {
				out[service] = map[string][]string{}
			}
			for _, p := range s.Ports {
				port := ptr.Deref(p.Name, "")
				out[service][port] = append(out[service][port], s.Labels[mcsv1beta1.LabelSourceCluster])
			}
		}
	}
	return out, nil
}

// replaced returns an error if a port has endpoints of the dead cluster although another serves
// it, or if a service that was served is not any more.
func (now served) replaced(before served, dead string) error {
	for service, ports := range now {
		for port, clusters := range ports {
			if slices.Contains(clusters, dead) && slices.ContainsFunc(clusters, func(c string) bool { return c != dead }) {
				return fmt.Errorf("port %q of %s has endpoints of %v, though %s is dead", port, service, clusters, dead)
			}
		}
	}
	for service := range before {
		if len(now[service]) == 0 {
			return fmt.Errorf("%s had endpoints before %s died, and has none", service, dead)
		}
	}
	return nil
}

// of returns the services that have endpoints of a cluster.
func (now served) of(cluster string) map[string]bool {
	out := map[string]bool{}
	for service, ports := range now {
		for clusters := range maps.Values(ports) {
			if slices.Contains(clusters, cluster) {
				out[service] = true
			}
		}
	}
	return out
}

// checkDeath checks what the others hold when a member dies and does not come back: living clusters
// replace it where they can, its endpoints stay where they cannot, and what was dropped stays
// dropped when the others restart.
func (w *workload) checkDeath(dead *fleet.Member) {
	w.t.Helper()
	before, dropped := map[string]served{}, 0
	for _, m := range w.fleet.Members {
		var err error
		if before[m.ID], err = w.servedIn(m); err != nil {
			w.t.Fatal(err)
		}
	}
	dead.Stop()
	check := func(m *fleet.Member) error {
		now, err := w.servedIn(m)
		if err != nil {
			return err
		}
		if err := now.replaced(before[m.ID], dead.ID); err != nil {
			return fmt.Errorf("%s: %w", m.ID, err)
		}
		return nil
	}
	var left []*fleet.Member
	for _, m := range w.fleet.Members {
		if m == dead {
			continue
		}
		left = append(left, m)
		harness.Eventually(w.t, m.ID+" replaces the dead cluster", func() error { return check(m) })
		now, err := w.servedIn(m)
		if err != nil {
			w.t.Fatal(err)
		}
		dropped += len(before[m.ID].of(dead.ID)) - len(now.of(dead.ID))
	}
	if dropped == 0 {
		w.t.Error("no endpoint of the dead cluster was dropped: the history is too small for this check")
	}
	w.t.Logf("%s died: %d of its services were dropped in other clusters", dead.ID, dropped)
	for _, m := range left {
		m.Stop()
		if err := m.Start(); err != nil {
			w.t.Fatal(err)
		}
	}
	harness.Consistently(w.t, "endpoints of the dead cluster stay away", 2*dead.Agent.LeaseDuration, func() error {
		time.Sleep(200 * time.Millisecond) // polling without a pause would load the machine
		for _, m := range left {
			if err := check(m); err != nil {
				return err
			}
		}
		return nil
	})
}
