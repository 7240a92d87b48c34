package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// still is how long nothing must change to count as nothing: longer than a lease lasts here.
const still = 6 * time.Second

// TestOutages takes API servers away from one clusterset, one outage after the other: each also shows that the one before left
// it whole.
func TestOutages(t *testing.T) {
	cps := harness.Fresh(t, 3)
	f, err := fleet.New(t.Context(), cps[0], cps[1:], fleet.Options{})
	must(t, err)
	must(t, f.Start())
	t.Cleanup(f.Stop)
	for _, outage := range []struct {
		name string
		run  func(*testing.T, *fleet.Fleet)
	}{
		{"broker stopped and started", brokerStopped},
		{"agent started while the broker is away", agentStartedWithoutBroker},
		{"broker paused and resumed", brokerPaused},
		{"broker set back to an older state", brokerSetBack},
		{"API server of a member stopped and started", memberStopped},
	} {
		if !t.Run(outage.name, func(t *testing.T) { outage.run(t, f) }) {
			return // what follows would only fail after it
		}
	}
}

// settled exports a few services from both members and waits until all is imported and told. Those called quiet are never
// touched.
func settled(t *testing.T, f *fleet.Fleet) (ns string) {
	t.Helper()
	east, west := f.Members[0], f.Members[1]
	ns = namespace(t, f.Members...)
	for _, name := range []string{"both", "quiet-1", "quiet-2"} {
		serve(t, east, ns, name, "10.1.0.1", "10.1.0.2")
		serve(t, west, ns, name, "10.2.0.1")
	}
	serve(t, east, ns, "solo", "10.1.0.3")
	serve(t, east, ns, "gone", "10.1.0.4")
	for _, m := range f.Members {
		importsExactly(t, m, ns, map[string]sources{
			"both": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}}, "quiet-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
			"quiet-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}}, "solo": {"east": {"10.1.0.3"}}, "gone": {"east": {"10.1.0.4"}},
		})
		for _, name := range []string{"both", "quiet-1", "quiet-2"} {
			exported(t, m, ns, name)
		}
	}
	exported(t, east, ns, "solo")
	exported(t, east, ns, "gone")
	quiet(t, f.Broker, east.CP, west.CP)
	return ns
}

// duringOutage makes changes in east while the broker is away and checks what can be seen of them then.
func duringOutage(t *testing.T, f *fleet.Fleet, ns string) {
	t.Helper()
	east, west := f.Members[0], f.Members[1]
	unchanged := frozen(t, ns, west)
	changeEndpoints(t, east, ns, "both", "10.1.0.9")
	imported(t, east, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.1"}})
	east.Unexport(t, ns, "gone")
	serve(t, east, ns, "fresh", "10.1.0.5")
	if message := pending(t, east, ns, "fresh"); !strings.Contains(message, "waiting for the broker") || !strings.Contains(message, "by itself") {
		t.Errorf("the new export says %q: want why it is not exported, and that it will be", message)
	}
	must(t, unchanged())
}

// afterOutage waits until what duringOutage changed has come through everywhere.
func afterOutage(t *testing.T, f *fleet.Fleet, ns string) {
	t.Helper()
	for _, m := range f.Members {
		importsExactly(t, m, ns, map[string]sources{
			"both": {"east": {"10.1.0.9"}, "west": {"10.2.0.1"}}, "quiet-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
			"quiet-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}}, "solo": {"east": {"10.1.0.3"}}, "fresh": {"east": {"10.1.0.5"}},
		})
	}
	exported(t, f.Members[0], ns, "fresh")
	brokerHolds(t, f, ns, 3*4+2*3) // three services of two clusters, two of one; a record and a slice each, and an aggregate
}

// onlyDifferences returns a check that nothing of the services called quiet was written on any server since.
func onlyDifferences(t *testing.T, f *fleet.Fleet, ns string) func() {
	t.Helper()
	look := func() map[string]string {
		t.Helper()
		all, err := versions(f.Admin, ns, true)
		must(t, err)
		for _, m := range f.Members {
			local, err := versions(m.Client, ns, false)
			must(t, err)
			for name, version := range local {
				all[m.ID+" "+name] = version
			}
		}
		for name := range all {
			if !strings.Contains(name, "quiet-") {
				delete(all, name)
			}
		}
		return all
	}
	before := look()
	return func() {
		t.Helper()
		if changed := difference(before, look()); len(changed) > 0 || len(before) < 16 {
			t.Errorf("of %d objects nobody touched: %v", len(before), changed)
		}
	}
}

func brokerStopped(t *testing.T, f *fleet.Fleet) {
	ns := settled(t, f)
	untouched := onlyDifferences(t, f, ns)
	unchanged := frozen(t, ns, f.Members...)
	must(t, f.Broker.Stop())
	harness.Consistently(t, "imports and exports stay as they are", still, unchanged)
	duringOutage(t, f, ns)
	must(t, f.Broker.Restart(t.Context()))
	afterOutage(t, f, ns)
	untouched()
}

// A restart must not make an outage worse: nothing is deleted, what exports say stays, and own endpoints still move.
func agentStartedWithoutBroker(t *testing.T, f *fleet.Fleet) {
	ns := settled(t, f)
	east := f.Members[0]
	untouched := onlyDifferences(t, f, ns)
	unchanged := frozen(t, ns, f.Members...)
	must(t, f.Broker.Stop())
	for _, m := range f.Members {
		m.Stop()
		start(t, m)
	}
	harness.Consistently(t, "imports and exports stay as they are", still, unchanged)
	duringOutage(t, f, ns)
	// What this cluster no longer serves, its own clients must not find either.
	east.Delete(t, fleet.NewSlice(fleet.NewService(ns, "both"), "abc"))
	imported(t, east, ns, "both", sources{"west": {"10.2.0.1"}})
	east.Create(t, fleet.NewSlice(fleet.NewService(ns, "both"), "abc", "10.1.0.9"))
	must(t, f.Broker.Restart(t.Context()))
	afterOutage(t, f, ns)
	untouched()
}

func brokerPaused(t *testing.T, f *fleet.Fleet) {
	ns := settled(t, f)
	untouched := onlyDifferences(t, f, ns)
	unchanged := frozen(t, ns, f.Members...)
	must(t, f.Broker.Pause())
	harness.Consistently(t, "imports and exports stay as they are", still, unchanged)
	duringOutage(t, f, ns)
	must(t, f.Broker.Resume())
	afterOutage(t, f, ns)
	untouched()
}

// A broker that was set back has lost exports and endpoints and has others again that were withdrawn. Its members put it right,
// and no service blinks meanwhile.
func brokerSetBack(t *testing.T, f *fleet.Fleet) {
	east, west := f.Members[0], f.Members[1]
	ns := settled(t, f)
	restore, err := f.Broker.Snapshot(t.Context())
	must(t, err)
	want := map[string]sources{
		"both": {"east": {"10.1.0.9"}, "west": {"10.2.0.1", "10.2.0.2"}}, "quiet-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
		"quiet-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}}, "solo": {"east": {"10.1.0.3", "10.1.0.4"}},
	}
	changeEndpoints(t, east, ns, "both", "10.1.0.9")
	west.Create(t, fleet.NewSlice(fleet.NewService(ns, "both"), "def", "10.2.0.2"))
	east.Create(t, fleet.NewSlice(fleet.NewService(ns, "solo"), "def", "10.1.0.4"))
	east.Unexport(t, ns, "gone")
	// More writes than the snapshot has: the broker's clock, its revision, is set far back.
	each(60, func(i int) { serve(t, east, ns, svc(i), address(i)) })
	for i := range 60 {
		want[svc(i)] = sources{"east": {address(i)}}
	}
	for _, m := range f.Members {
		importsExactly(t, m, ns, want)
	}
	brokerHolds(t, f, ns, 3*5+1+4+60*3)
	watched := watchImports(t, f, ns, want)
	must(t, restore(t.Context()))
	brokerHolds(t, f, ns, 3*5+1+4+60*3)
	for _, m := range f.Members {
		notImported(t, m, ns, "gone")
		importsExactly(t, m, ns, want)
	}
	watched()
	// And it goes on as before.
	serve(t, west, ns, "after", "10.2.0.7")
	imported(t, east, ns, "after", sources{"west": {"10.2.0.7"}})
	exported(t, west, ns, "after")
}

// watchImports looks at the members' imports without a pause until the returned function is called, which fails the test if one
// of the services lost an address or its ServiceImport at any moment.
func watchImports(t *testing.T, f *fleet.Fleet, ns string, want map[string]sources) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	found := make(chan string, len(f.Members))
	rounds := make(chan int, len(f.Members))
	for _, m := range f.Members {
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				if gap := missing(ctx, m, ns, want); gap != "" && ctx.Err() == nil {
					found <- fmt.Sprintf("%s: %s", m.ID, gap)
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			rounds <- n
		}()
	}
	return func() {
		t.Helper()
		cancel()
		for range f.Members {
			if n := <-rounds; n < 5 {
				t.Errorf("the imports were looked at only %d times", n)
			}
		}
		close(found)
		for gap := range found {
			t.Error(gap)
		}
	}
}

// missing names the first address or ServiceImport that a member should have and has not.
func missing(ctx context.Context, m *fleet.Member, ns string, want map[string]sources) string {
	got, err := importedAddresses(m, ns)
	if err != nil {
		return err.Error()
	}
	imports, err := importNames(ctx, m, ns)
	if err != nil {
		return err.Error()
	}
	for name, bySource := range want {
		if !imports[name] {
			return "no ServiceImport " + name
		}
		for source, addresses := range bySource {
			if fmt.Sprint(got[name][source]) != fmt.Sprint(addresses) {
				return fmt.Sprintf("%s has %v of %s, want %v", name, got[name][source], source, addresses)
			}
		}
	}
	return ""
}

// A member whose own API server goes away misses what happens and catches up; its own changes are not lost.
func memberStopped(t *testing.T, f *fleet.Fleet) {
	east, west := f.Members[0], f.Members[1]
	ns := settled(t, f)
	must(t, west.CP.StopAPIServer())
	changeEndpoints(t, east, ns, "both", "10.1.0.9")
	east.Unexport(t, ns, "gone")
	serve(t, east, ns, "fresh", "10.1.0.5")
	exported(t, east, ns, "fresh")
	// It is the member's API server that is away, not the member: it is alive, and its pods serve.
	harness.Consistently(t, "its endpoints stay with the others", still, func() error {
		return sameAddresses(east, ns, "quiet-1", sources{"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}})
	})
	must(t, west.CP.StartAPIServer(t.Context()))
	afterOutage(t, f, ns)
	fleet.Update(t, west, ns, "both-abc", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.2.0.8" })
	imported(t, east, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.8"}})
}
