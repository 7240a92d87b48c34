package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// bulkServices is the number of services of the bulk export.
const bulkServices = 100

// An agent is killed several times during a bulk export, and changes happen while it is down. In
// the end exactly the exported services are on the broker and in all members: nothing is missing
// and nothing is left over.
func TestAgentKilledDuringBulkExport(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east := f.Members[0]
	inParallel(t, bulkServices, func(i int) { east.Serve(t, fleet.NewService(ns, serviceName(i)), address(i)) })
	east.Stop()
	east.StartProcess(t)
	t.Cleanup(func() { east.Kill(); start(t, east) })

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	exporting := make(chan struct{})
	go func() {
		defer close(exporting)
		inParallel(t, bulkServices, func(i int) { east.Export(t, ns, serviceName(i)) })
	}()
	// An agent takes a few hundred milliseconds to start, and then waits one and a half seconds to
	// see whether the one before it is alive, so it is killed before its first write in some rounds
	// and after it in others.
	for range 4 {
		time.Sleep(time.Duration(500+random.IntN(3000)) * time.Millisecond)
		east.Kill()
		east.StartProcess(t)
	}
	<-exporting
	time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
	east.Kill()
	// The agent must find these changes when it starts again.
	want := map[string]sources{}
	for i := range bulkServices {
		switch i % 10 {
		case 1:
			east.Unexport(t, ns, serviceName(i))
		case 2:
			east.Delete(t, fleet.NewService(ns, serviceName(i)), fleet.NewSlice(fleet.NewService(ns, serviceName(i)), "abc"))
		case 3:
			changeEndpoints(t, east, ns, serviceName(i), "10.3.3.3")
			want[serviceName(i)] = sources{"east": {"10.3.3.3"}}
		default:
			want[serviceName(i)] = sources{"east": {address(i)}}
		}
	}
	east.StartProcess(t)
	for _, m := range f.Members {
		awaitImports(t, m, ns, want)
	}
	awaitOnBroker(t, f, ns, 3*len(want)) // a record, a slice and an aggregate each
	for name := range want {
		east.AwaitExported(t, ns, name)
	}
}

// Agents that restart when nothing has changed write nothing: no object, no status, no event, and
// no request that is refused.
func TestRestartWritesNothing(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + ns}}
	west.Create(t, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.77.0.1"}}
	must(t, west.Client.Status().Update(context.Background(), node))
	for i := range 20 {
		serve(t, east, ns, serviceName(i), address(i))
	}
	// Conflicts, missing Services and refused addresses must not be reported a second time.
	serve(t, east, ns, "refused", "10.77.0.1", "10.77.0.2")
	north.Serve(t, fleet.NewService(ns, serviceName(0), func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }), "10.9.0.1")
	north.Export(t, ns, serviceName(0))
	north.Export(t, ns, "no-service")
	for i := 1; i < 20; i++ {
		north.AwaitImport(t, ns, serviceName(i), sources{"east": {address(i)}})
	}
	west.AwaitImport(t, ns, serviceName(0), sources{"east": {address(0)}, "north": {"10.9.0.1"}})
	west.AwaitImport(t, ns, "refused", sources{"east": {"10.77.0.2"}})
	awaitNotReady(t, north, ns, "no-service", mcsv1beta1.ServiceExportReasonFailed)
	// No member may become stale while its agent starts: on a busy machine that can take longer than
	// the short leases of these tests.
	for _, m := range f.Members {
		lease := m.Agent.LeaseDuration
		restart := func(lease time.Duration) {
			m.Stop()
			m.Agent.LeaseDuration = lease
			start(t, m)
		}
		restart(time.Minute)
		t.Cleanup(func() { restart(lease) })
	}
	t.Cleanup(func() { west.Delete(t, node) }) // before the agents restart, which then publish it at once
	harness.Eventually(t, "west publishes the address of its node", func() error {
		cluster := &v1alpha1.Cluster{}
		key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: west.ID}
		if err := f.Admin.Get(context.Background(), key, cluster); err != nil {
			return err
		}
		if !slices.Contains(cluster.Status.NodeCIDRs, "10.77.0.1/32") {
			return fmt.Errorf("its status is %+v", cluster.Status)
		}
		return nil
	})
	cps := []*controlplane.ControlPlane{east.CP, west.CP, north.CP}
	before := awaitNoWrites(t, cps...)
	for _, m := range f.Members {
		m.Stop()
		renewedAt := lastRenewal(t, f, m.ID)
		start(t, m)
		harness.Eventually(t, m.ID+" renews its lease again", func() error {
			if lastRenewal(t, f, m.ID).Equal(renewedAt) {
				return fmt.Errorf("not since %s", renewedAt)
			}
			return nil
		})
	}
	after := awaitNoWrites(t, cps...)
	for i := range cps {
		for what, n := range after[i] {
			if extra := n - before[i][what]; extra > 0 {
				t.Errorf("%s: %d × %s after a restart", f.Members[i].ID, extra, what)
			}
		}
	}
	// The agents do work, and the writes are counted.
	changeEndpoints(t, east, ns, serviceName(5), "10.3.3.3")
	west.AwaitImport(t, ns, serviceName(5), sources{"east": {"10.3.3.3"}})
	if n := writeCounts(t, west.CP)["PUT endpointslices/"] - after[1]["PUT endpointslices/"]; n != 1 {
		t.Errorf("a change of one endpoint took %d writes of slices in west, want 1", n)
	}
}

func serviceName(i int) string { return fmt.Sprintf("svc-%03d", i) }

func address(i int) string { return fmt.Sprintf("10.1.%d.%d", i/200, i%200+1) }

// inParallel calls do for 0 to n-1, eight at a time.
func inParallel(t *testing.T, n int, do func(int)) {
	t.Helper()
	must(t, harness.Parallel(8, n, func(i int) error { do(i); return nil }))
}

// changeEndpoints replaces the addresses of a service in a member.
func changeEndpoints(t *testing.T, m *fleet.Member, ns, name string, addresses ...string) {
	t.Helper()
	source := fleet.NewSlice(fleet.NewService(ns, name), "abc", addresses...)
	fleet.Update(t, m, ns, source.Name, source.DeepCopy(), func(s *discoveryv1.EndpointSlice) { s.Endpoints = source.Endpoints })
}

// awaitImports waits until a member's imports in a namespace are exactly these.
func awaitImports(t *testing.T, m *fleet.Member, ns string, want map[string]sources) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d imports in %s of %s", len(want), ns, m.ID), func() error {
		var list mcsv1beta1.ServiceImportList
		if err := m.Client.List(context.Background(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) != len(want) {
			return fmt.Errorf("there are %d ServiceImports", len(list.Items))
		}
		got, err := importedAddresses(m, ns)
		if err != nil {
			return err
		}
		for name, addresses := range want {
			if fmt.Sprint(got[name]) != fmt.Sprint(addresses) {
				return fmt.Errorf("%s has %v, want %v", name, got[name], addresses)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			return fmt.Errorf("slices are left over: %v", got)
		}
		return nil
	})
}

// importedAddresses returns all addresses that a member imported in a namespace, by service and
// source cluster.
func importedAddresses(m *fleet.Member, ns string) (map[string]sources, error) {
	var list discoveryv1.EndpointSliceList
	err := m.Client.List(context.Background(), &list, client.InNamespace(ns), client.HasLabels{mcsv1beta1.LabelServiceName})
	out := map[string]sources{}
	for i := range list.Items {
		s := &list.Items[i]
		name, source := s.Labels[mcsv1beta1.LabelServiceName], s.Labels[mcsv1beta1.LabelSourceCluster]
		if out[name] == nil {
			out[name] = sources{}
		}
		for _, e := range s.Endpoints {
			out[name][source] = append(out[name][source], e.Addresses...)
		}
		slices.Sort(out[name][source])
	}
	return out, err
}

// lastRenewal returns when a member's lease was renewed last.
func lastRenewal(t *testing.T, f *fleet.Fleet, id string) time.Time {
	t.Helper()
	lease := leaseOf(t, f, id)
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// leaseOf reads a member's lease on the broker.
func leaseOf(t *testing.T, f *fleet.Fleet, id string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	must(t, f.Admin.Get(context.Background(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: id}, lease))
	return lease
}
