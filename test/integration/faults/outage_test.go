package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// still is how long nothing must change to count as nothing: longer than a lease lasts here.
const still = 6 * time.Second

// TestOutages takes API servers away from one clusterset, one outage after the other: each also shows that the one before left
// it whole.
func TestOutages(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 3)
	f, err := fleet.New(t.Context(), cps[0], cps[1:], fleet.Options{})
	must(t, err)
	must(t, f.Start())
	t.Cleanup(f.Stop)
	var restore func(context.Context) error
	for _, outage := range []struct {
		name string
		run  func(*testing.T, *fleet.Fleet)
	}{
		{"broker stopped and started, with agents that start meanwhile", func(t *testing.T, f *fleet.Fleet) { restore = brokerStopped(t, f) }},
		{"broker set back to an older state", func(t *testing.T, f *fleet.Fleet) { brokerSetBack(t, f, restore) }},
		{"broker paused and resumed", brokerPaused},
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
	ns = fleet.NewNamespace(t, f.Members...)
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
	brokerHolds(t, f, ns, 3*5+2*3) // three services of two clusters, two of one; a record and a slice each, and an aggregate
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

// brokerStopped stops the broker, starts the agents anew while it is away, which must not make the outage worse, and starts the
// broker again. It returns a way back to the state of that moment.
func brokerStopped(t *testing.T, f *fleet.Fleet) (restore func(context.Context) error) {
	ns := settled(t, f)
	east := f.Members[0]
	untouched := onlyDifferences(t, f, ns)
	unchanged := frozen(t, ns, f.Members...)
	must(t, f.Broker.Stop())
	harness.Consistently(t, "imports and exports stay as they are", still, unchanged)
	duringOutage(t, f, ns)

	unchanged = frozen(t, ns, f.Members...)
	for _, m := range f.Members {
		m.Stop()
		start(t, m)
	}
	harness.Consistently(t, "imports and exports stay as they are, with agents that never saw the broker", still, unchanged)
	// What this cluster no longer serves, its own clients must not find either.
	east.Delete(t, fleet.NewSlice(fleet.NewService(ns, "both"), "abc"))
	imported(t, east, ns, "both", sources{"west": {"10.2.0.1"}})
	east.Create(t, fleet.NewSlice(fleet.NewService(ns, "both"), "abc", "10.1.0.9"))
	imported(t, east, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.1"}})
	serve(t, east, ns, "fresher", "10.1.0.6")
	pending(t, east, ns, "fresher")

	restore, err := f.Broker.Snapshot(t.Context()) // starts it
	must(t, err)
	acceptsWrites(t, f)
	imported(t, f.Members[1], ns, "fresher", sources{"east": {"10.1.0.6"}})
	east.Unexport(t, ns, "fresher")
	afterOutage(t, f, ns)
	untouched()
	return restore
}

// acceptsWrites waits until the broker takes what members write. An API server that has just started refuses it for up to half a
// minute: its admission looks only that often for new kinds, and the members' grants are of a kind of ours.
func acceptsWrites(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	begun := time.Now()
	for {
		c, err := brokeradmin.NewClient(membershipOf(t, f.Members[0]).Config())
		if err == nil {
			record := &v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{
				Namespace: objects.DefaultNamespace, Name: "dry.run.east", Labels: objects.Labels(types.NamespacedName{Namespace: "run", Name: "dry"}, "east"),
			}}
			record.Spec = v1alpha1.ExportRecordSpec{
				ServiceName: "dry", ServiceNamespace: "run", ClusterID: "east", ExportedAt: metav1.Now(), Type: "ClusterSetIP",
				Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}, IPFamilies: []corev1.IPFamily{"IPv4"},
			}
			err = c.Create(t.Context(), record, client.DryRunAll)
		}
		if err == nil {
			t.Logf("the broker accepted writes after %s", time.Since(begun).Round(time.Second))
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("the broker refuses what members write: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
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
func brokerSetBack(t *testing.T, f *fleet.Fleet, restore func(context.Context) error) {
	east, west := f.Members[0], f.Members[1]
	ns := settled(t, f) // all of it is younger than the snapshot
	old := oldNamespace(t, f, ns)
	// What the snapshot has and is no more, what it has otherwise, and what it has not.
	east.Unexport(t, old, "solo")
	changeEndpoints(t, east, old, "both", "10.1.0.7", "10.1.0.8")
	west.Create(t, fleet.NewSlice(fleet.NewService(old, "quiet-1"), "def", "10.2.0.2"))
	each(60, func(i int) { serve(t, east, ns, svc(i), address(i)) })
	before := map[string]sources{
		"both": {"east": {"10.1.0.7", "10.1.0.8"}, "west": {"10.2.0.1"}}, "quiet-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1", "10.2.0.2"}},
		"quiet-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}}, "fresh": {"east": {"10.1.0.5"}},
	}
	since := map[string]sources{
		"both": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}}, "quiet-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
		"quiet-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}}, "solo": {"east": {"10.1.0.3"}}, "gone": {"east": {"10.1.0.4"}},
	}
	for i := range 60 {
		since[svc(i)] = sources{"east": {address(i)}}
	}
	hold := func() {
		t.Helper()
		for _, m := range f.Members {
			importsExactly(t, m, old, before)
			importsExactly(t, m, ns, since)
		}
		brokerHolds(t, f, old, 3*5+1+3)
		brokerHolds(t, f, ns, 3*5+2*3+60*3)
	}
	hold()
	watchedOld, watched := watchImports(t, f, old, before), watchImports(t, f, ns, since)
	must(t, restore(t.Context()))
	if names, err := onBroker(f, client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}); err != nil || len(names) > 100 {
		t.Fatalf("the broker was not set back: it has %d objects (%v)", len(names), err)
	}
	acceptsWrites(t, f)
	hold()
	watchedOld()
	watched()
	// And it goes on as before.
	serve(t, west, ns, "after", "10.2.0.7")
	imported(t, east, ns, "after", sources{"west": {"10.2.0.7"}})
	exported(t, west, ns, "after")
}

// oldNamespace is the one namespace beside ns that the members exchange services of.
func oldNamespace(t *testing.T, f *fleet.Fleet, ns string) string {
	t.Helper()
	var list mcsv1beta1.ServiceExportList
	must(t, f.Members[0].Client.List(t.Context(), &list))
	for i := range list.Items {
		if other := list.Items[i].Namespace; other != ns {
			return other
		}
	}
	t.Fatal("there is no other namespace with exports")
	return ""
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
