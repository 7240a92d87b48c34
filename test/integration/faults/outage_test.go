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

// outageLease is how long a lease lasts in TestOutages. On a busy machine an API server that has
// just started answers so slowly that agents miss renewals for several seconds.
const outageLease = 12 * time.Second

// observationPeriod is how long a test watches that nothing changes. It is longer than a lease
// lasts in other tests.
const observationPeriod = 6 * time.Second

// TestOutages stops API servers of one clusterset, one outage after the other. Each also shows that
// the clusterset recovered from the one before.
func TestOutages(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 3)
	f := fleet.Started(t, cps[0], cps[1:], fleet.Options{RenewEvery: time.Second, LeaseDuration: outageLease})
	var restore func(context.Context) error
	for _, outage := range []struct {
		name string
		run  func(*testing.T, *fleet.Fleet)
	}{
		{"broker stopped and started, with agents that restart meanwhile", func(t *testing.T, f *fleet.Fleet) { restore = brokerStopped(t, f) }},
		{"broker restored from an older snapshot", func(t *testing.T, f *fleet.Fleet) { brokerRestored(t, f, restore) }},
		{"broker paused and resumed", brokerPaused},
		{"API server of a member stopped and started", memberStopped},
	} {
		if !t.Run(outage.name, func(t *testing.T) { outage.run(t, f) }) {
			return // the outages after it would fail, too
		}
	}
}

// exportServices exports a few services from both members and waits until all are imported, ready,
// and no more writes happen. The tests never change the services called untouched.
func exportServices(t *testing.T, f *fleet.Fleet) (ns string) {
	t.Helper()
	east, west := f.Members[0], f.Members[1]
	ns = fleet.NewNamespace(t, f.Members...)
	for _, name := range []string{"both", "untouched-1", "untouched-2"} {
		serve(t, east, ns, name, "10.1.0.1", "10.1.0.2")
		serve(t, west, ns, name, "10.2.0.1")
	}
	serve(t, east, ns, "solo", "10.1.0.3")
	serve(t, east, ns, "gone", "10.1.0.4")
	for _, m := range f.Members {
		awaitImports(t, m, ns, map[string]sources{
			"both":        {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
			"untouched-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
			"untouched-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
			"solo":        {"east": {"10.1.0.3"}}, "gone": {"east": {"10.1.0.4"}},
		})
		for _, name := range []string{"both", "untouched-1", "untouched-2"} {
			m.AwaitExported(t, ns, name)
		}
	}
	east.AwaitExported(t, ns, "solo")
	east.AwaitExported(t, ns, "gone")
	awaitNoWrites(t, f.Broker, east.CP, west.CP)
	return ns
}

// changeDuringOutage makes changes in east while the broker is unreachable, and checks their effect
// in that time.
func changeDuringOutage(t *testing.T, f *fleet.Fleet, ns string) {
	t.Helper()
	east, west := f.Members[0], f.Members[1]
	unchanged := unchangedCheck(t, ns, west)
	changeEndpoints(t, east, ns, "both", "10.1.0.9")
	east.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.1"}})
	east.Unexport(t, ns, "gone")
	serve(t, east, ns, "fresh", "10.1.0.5")
	awaitNotReady(t, east, ns, "fresh", v1alpha1.ServiceExportReasonWaitingForBroker, "waiting for the broker", "by itself")
	must(t, unchanged())
}

// awaitRecovery waits until the changes of changeDuringOutage have reached the broker and all
// members.
func awaitRecovery(t *testing.T, f *fleet.Fleet, ns string) {
	t.Helper()
	for _, m := range f.Members {
		awaitImports(t, m, ns, map[string]sources{
			"both":        {"east": {"10.1.0.9"}, "west": {"10.2.0.1"}},
			"untouched-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
			"untouched-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
			"solo":        {"east": {"10.1.0.3"}}, "fresh": {"east": {"10.1.0.5"}},
		})
	}
	f.Members[0].AwaitExported(t, ns, "fresh")
	// Three services of two clusters and two of one: a record and a slice per export, and an aggregate
	// per service.
	awaitOnBroker(t, f, ns, 3*5+2*3)
}

// untouchedCheck returns a check that no object of the services called untouched was written on any
// server since it was called.
func untouchedCheck(t *testing.T, f *fleet.Fleet, ns string) func() {
	t.Helper()
	read := func() map[string]string {
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
			if !strings.Contains(name, "untouched-") {
				delete(all, name)
			}
		}
		return all
	}
	before := read()
	return func() {
		t.Helper()
		if changed := changedObjects(before, read()); len(changed) > 0 || len(before) < 16 {
			t.Errorf("of %d objects of untouched services these changed: %v", len(before), changed)
		}
	}
}

// brokerStopped stops the broker, restarts the agents meanwhile, which must not make the outage
// worse, and starts the broker again. It returns a function that restores the broker's state of
// that moment.
func brokerStopped(t *testing.T, f *fleet.Fleet) (restore func(context.Context) error) {
	ns := exportServices(t, f)
	east := f.Members[0]
	untouched := untouchedCheck(t, f, ns)
	unchanged := unchangedCheck(t, ns, f.Members...)
	must(t, f.Broker.Stop())
	harness.Consistently(t, "imports and exports do not change", outageLease+time.Second, unchanged)
	changeDuringOutage(t, f, ns)

	unchanged = unchangedCheck(t, ns, f.Members...)
	for _, m := range f.Members {
		m.Stop()
		start(t, m)
	}
	harness.Consistently(t, "imports and exports do not change, with agents that have never reached the broker", outageLease+time.Second, unchanged)
	// Endpoints that this cluster no longer has are removed from its own import, too.
	east.Delete(t, fleet.NewSlice(fleet.NewService(ns, "both"), "abc"))
	east.AwaitImport(t, ns, "both", sources{"west": {"10.2.0.1"}})
	east.Create(t, fleet.NewSlice(fleet.NewService(ns, "both"), "abc", "10.1.0.9"))
	east.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.1"}})
	serve(t, east, ns, "fresher", "10.1.0.6")
	awaitNotReady(t, east, ns, "fresher", v1alpha1.ServiceExportReasonWaitingForBroker)

	restore, err := f.Broker.Snapshot(t.Context()) // starts it
	must(t, err)
	awaitWritable(t, f)
	f.Members[1].AwaitImport(t, ns, "fresher", sources{"east": {"10.1.0.6"}})
	east.Unexport(t, ns, "fresher")
	awaitRecovery(t, f, ns)
	untouched()
	return restore
}

// awaitWritable waits until the broker accepts the members' writes. An API server that has just
// started refuses them for up to half a minute: its admission reads the API's discovery only that
// often, and the parameters of the members' policy are custom resources.
func awaitWritable(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	started := time.Now()
	for {
		c, err := brokeradmin.NewClient(membershipOf(t, f.Members[0]).Config())
		if err == nil {
			record := &v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{
				Namespace: objects.DefaultNamespace, Name: "dry.run.east",
				Labels: objects.Labels(types.NamespacedName{Namespace: "run", Name: "dry"}, "east"),
			}}
			record.Spec = v1alpha1.ExportRecordSpec{
				ServiceName: "dry", ServiceNamespace: "run", ClusterID: "east", ExportedAt: metav1.Now(), Type: "ClusterSetIP",
				Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}, IPFamilies: []corev1.IPFamily{"IPv4"},
			}
			err = c.Create(t.Context(), record, client.DryRunAll)
		}
		if err == nil {
			t.Logf("the broker accepted writes after %s", time.Since(started).Round(time.Second))
			return
		}
		if time.Since(started) > time.Minute {
			t.Fatalf("the broker refuses the members' writes: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func brokerPaused(t *testing.T, f *fleet.Fleet) {
	ns := exportServices(t, f)
	untouched := untouchedCheck(t, f, ns)
	unchanged := unchangedCheck(t, ns, f.Members...)
	must(t, f.Broker.Pause())
	harness.Consistently(t, "imports and exports do not change", outageLease+time.Second, unchanged)
	changeDuringOutage(t, f, ns)
	must(t, f.Broker.Resume())
	awaitRecovery(t, f, ns)
	untouched()
}

// A broker that was restored from an older snapshot lacks new exports and endpoints, and has others
// that were withdrawn. Its members correct that, and no import loses an endpoint meanwhile.
func brokerRestored(t *testing.T, f *fleet.Fleet, restore func(context.Context) error) {
	east, west := f.Members[0], f.Members[1]
	ns := exportServices(t, f) // all objects are newer than the snapshot
	old := oldNamespace(t, f, ns)
	// Exports that only the snapshot has, endpoints that differ, and exports that the snapshot lacks.
	east.Unexport(t, old, "solo")
	changeEndpoints(t, east, old, "both", "10.1.0.7", "10.1.0.8")
	west.Create(t, fleet.NewSlice(fleet.NewService(old, "untouched-1"), "def", "10.2.0.2"))
	inParallel(t, 60, func(i int) { serve(t, east, ns, serviceName(i), address(i)) })
	before := map[string]sources{
		"both":        {"east": {"10.1.0.7", "10.1.0.8"}, "west": {"10.2.0.1"}},
		"untouched-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1", "10.2.0.2"}},
		"untouched-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
		"fresh":       {"east": {"10.1.0.5"}},
	}
	since := map[string]sources{
		"both":        {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
		"untouched-1": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
		"untouched-2": {"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}},
		"solo":        {"east": {"10.1.0.3"}}, "gone": {"east": {"10.1.0.4"}},
	}
	for i := range 60 {
		since[serviceName(i)] = sources{"east": {address(i)}}
	}
	awaitState := func() {
		t.Helper()
		for _, m := range f.Members {
			awaitImports(t, m, old, before)
			awaitImports(t, m, ns, since)
		}
		awaitOnBroker(t, f, old, 3*5+1+3)
		awaitOnBroker(t, f, ns, 3*5+2*3+60*3)
	}
	awaitState()
	checkOldGaps, checkGaps := watchForGaps(t, f, old, before), watchForGaps(t, f, ns, since)
	must(t, restore(t.Context()))
	if names, err := f.OnBroker(client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}); err != nil || len(names) > 100 {
		t.Fatalf("the broker was not restored: it has %d objects (%v)", len(names), err)
	}
	awaitWritable(t, f)
	awaitState()
	checkOldGaps()
	checkGaps()
	// New exports work as before.
	serve(t, west, ns, "after", "10.2.0.7")
	east.AwaitImport(t, ns, "after", sources{"west": {"10.2.0.7"}})
	west.AwaitExported(t, ns, "after")
}

// oldNamespace returns the other namespace with exports: the one of the test before.
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

// watchForGaps reads the members' imports continuously until the returned function is called. That
// function fails the test if one of the services lacked an address or its ServiceImport at any
// time.
func watchForGaps(t *testing.T, f *fleet.Fleet, ns string, want map[string]sources) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	found := make(chan string, len(f.Members))
	rounds := make(chan int, len(f.Members))
	for _, m := range f.Members {
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				if gap := firstGap(ctx, m, ns, want); gap != "" && ctx.Err() == nil {
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
				t.Errorf("the imports were read only %d times", n)
			}
		}
		close(found)
		for gap := range found {
			t.Error(gap)
		}
	}
}

// firstGap describes the first address or ServiceImport that a member lacks, or returns "".
func firstGap(ctx context.Context, m *fleet.Member, ns string, want map[string]sources) string {
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

// A member whose own API server stops catches up with all changes when it starts again.
func memberStopped(t *testing.T, f *fleet.Fleet) {
	east, west := f.Members[0], f.Members[1]
	ns := exportServices(t, f)
	must(t, west.CP.StopAPIServer())
	changeEndpoints(t, east, ns, "both", "10.1.0.9")
	east.Unexport(t, ns, "gone")
	serve(t, east, ns, "fresh", "10.1.0.5")
	east.AwaitExported(t, ns, "fresh")
	// Only the member's API server is down. Its agent renews its lease, and its pods still serve.
	f.Consistently(t, "other members keep its endpoints", observationPeriod, func() error {
		return east.CheckAddresses(ns, "untouched-1", sources{"east": {"10.1.0.1", "10.1.0.2"}, "west": {"10.2.0.1"}})
	})
	must(t, west.CP.StartAPIServer(t.Context()))
	awaitRecovery(t, f, ns)
	fleet.Update(t, west, ns, "both-abc", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Addresses[0] = "10.2.0.8"
	})
	east.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.8"}})
}
