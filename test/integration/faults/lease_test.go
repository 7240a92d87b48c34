package faults_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// awaitStaleEndpointsKept waits until an import has the condition StaleEndpointsKept with a message
// that names west as the stale cluster.
func awaitStaleEndpointsKept(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("StaleEndpointsKept on %s/%s in %s", ns, name, m.ID), func() error {
		c, err := staleEndpointsKept(m, ns, name)
		if err != nil {
			return err
		}
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != string(v1alpha1.ServiceImportReasonNoOtherCluster) ||
			!strings.Contains(c.Message, "cluster west has not been heard from") {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}

// awaitNoStaleEndpointsKept waits until an import does not have the condition StaleEndpointsKept.
func awaitNoStaleEndpointsKept(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("no StaleEndpointsKept on %s/%s in %s", ns, name, m.ID), func() error {
		c, err := staleEndpointsKept(m, ns, name)
		if err != nil {
			return err
		}
		if c != nil {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}

// staleEndpointsKept returns the condition StaleEndpointsKept of an import that is ready, or nil if
// it does not have the condition. Ready must not repeat what that condition says.
func staleEndpointsKept(m *fleet.Member, ns, name string) (*metav1.Condition, error) {
	si, err := m.Import(ns, name)
	if err != nil {
		return nil, err
	}
	ready := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
	if ready == nil || ready.Status != metav1.ConditionTrue || strings.Contains(ready.Message, "heard from") {
		return nil, fmt.Errorf("the Ready condition is %+v", ready)
	}
	return meta.FindStatusCondition(si.Status.Conditions, string(v1alpha1.ServiceImportConditionStaleEndpointsKept)), nil
}

func setStaleEndpoints(t *testing.T, f *fleet.Fleet, policy v1alpha1.StaleEndpointsPolicy) {
	t.Helper()
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set := &v1alpha1.ClusterSet{}
		key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: brokeradmin.DefaultClusterSet}
		if err := f.Admin.Get(context.Background(), key, set); err != nil {
			return err
		}
		set.Spec.StaleEndpoints = policy
		return f.Admin.Update(context.Background(), set)
	}))
}

// The endpoints of a stale member are dropped if another cluster serves the service, and kept
// otherwise, unless the clusterset's policy is to remove them. They come back with the member.
func TestStaleMember(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, east, ns, "both", "10.1.0.1")
	serve(t, west, ns, "both", "10.2.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	// A cluster without ready endpoints does not serve the service, so it does not replace the stale
	// endpoints.
	east.Create(t, fleet.NewService(ns, "empty"))
	east.Export(t, ns, "empty")
	serve(t, west, ns, "empty", "10.2.0.3")
	all := map[string]sources{
		"both": {"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}, "solo": {"west": {"10.2.0.2"}}, "empty": {"west": {"10.2.0.3"}},
	}
	awaitImports(t, north, ns, all)
	awaitNoStaleEndpointsKept(t, north, ns, "solo")
	west.Stop()
	t.Cleanup(func() { west.Stop(); start(t, west) })

	north.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.1"}})
	east.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.1"}})
	north.AwaitImport(t, ns, "solo", sources{"west": {"10.2.0.2"}})
	north.AwaitImport(t, ns, "empty", sources{"west": {"10.2.0.3"}})
	awaitStaleEndpointsKept(t, north, ns, "solo")
	awaitStaleEndpointsKept(t, north, ns, "empty")
	awaitNoStaleEndpointsKept(t, north, ns, "both")

	setStaleEndpoints(t, f, v1alpha1.StaleEndpointsRemove)
	t.Cleanup(func() { setStaleEndpoints(t, f, v1alpha1.StaleEndpointsFailover) })
	north.AwaitImport(t, ns, "solo", sources{})
	north.AwaitImport(t, ns, "empty", sources{})
	north.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.1"}})
	setStaleEndpoints(t, f, v1alpha1.StaleEndpointsFailover)
	north.AwaitImport(t, ns, "solo", sources{"west": {"10.2.0.2"}})

	// A new exporter replaces the stale endpoints of a service that only the stale member exported.
	serve(t, east, ns, "solo", "10.1.0.2")
	north.AwaitImport(t, ns, "solo", sources{"east": {"10.1.0.2"}})
	start(t, west)
	all["solo"]["east"] = []string{"10.1.0.2"}
	for _, m := range f.Members {
		awaitImports(t, m, ns, all)
	}
	awaitNoStaleEndpointsKept(t, north, ns, "empty")
}

// A stale member's endpoints are dropped for the ports that another cluster serves, and kept for
// those that only it has.
func TestFailoverByPort(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	withPorts := func(ports ...corev1.ServicePort) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.Ports = ports }
	}
	west.Serve(t, fleet.NewService(ns, "web", withPorts(fleet.Port("http", 80), fleet.Port("metrics", 90))), "10.2.0.1")
	west.Export(t, ns, "web")
	east.Serve(t, fleet.NewService(ns, "web", withPorts(fleet.Port("metrics", 90))), "10.1.0.1")
	east.Export(t, ns, "web")
	awaitPorts(t, north, ns, "web", map[string]string{"east": "metrics", "west": "http metrics"})
	west.Stop()
	t.Cleanup(func() { west.Stop(); start(t, west) })

	awaitPorts(t, north, ns, "web", map[string]string{"east": "metrics", "west": "http"})
	awaitStaleEndpointsKept(t, north, ns, "web")
	start(t, west)
	awaitPorts(t, north, ns, "web", map[string]string{"east": "metrics", "west": "http metrics"})
	awaitNoStaleEndpointsKept(t, north, ns, "web")
}

// awaitPorts waits until the imported slices of a service have these ports, by source cluster.
func awaitPorts(t *testing.T, m *fleet.Member, ns, name string, want map[string]string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("ports of %s/%s in %s", ns, name, m.ID), func() error {
		imported, err := m.ImportedSlices(ns, name)
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, s := range imported {
			var names []string
			for _, p := range s.Ports {
				names = append(names, *p.Name)
			}
			slices.Sort(names)
			got[s.Labels[mcsv1beta1.LabelSourceCluster]] = strings.Join(names, " ")
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("they are %v, want %v", got, want)
		}
		return nil
	})
}

// A member that is cut off from the broker cannot know whether other members are alive, so it keeps
// all imports. The other members drop its endpoints.
func TestCutOffMemberKeepsImports(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	broker := ownLink(t, f, north)
	all := map[string]sources{"web": {}}
	for i, m := range f.Members {
		serve(t, m, ns, "web", fmt.Sprintf("10.%d.0.1", i+1))
		all["web"][m.ID] = []string{fmt.Sprintf("10.%d.0.1", i+1)}
	}
	serve(t, east, ns, "solo", "10.1.0.2")
	all["solo"] = sources{"east": {"10.1.0.2"}}
	for _, m := range f.Members {
		awaitImports(t, m, ns, all)
	}
	awaitNoWrites(t, east.CP, west.CP, north.CP)
	unchanged := unchangedCheck(t, ns, north)
	broker.cut()
	east.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}) // the others take it for stale
	harness.Consistently(t, "the member that is cut off keeps all imports", 2*time.Second, unchanged)
	serve(t, west, ns, "meanwhile", "10.2.0.2")
	changeEndpoints(t, north, ns, "web", "10.3.0.9")
	north.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}, "north": {"10.3.0.9"}, "west": {"10.2.0.1"}})
	serve(t, north, ns, "cut", "10.3.0.2")
	awaitNotReady(t, north, ns, "cut", v1alpha1.ServiceExportReasonWaitingForBroker, "waiting for the broker")
	broker.restore()
	all["web"]["north"], all["meanwhile"], all["cut"] = []string{"10.3.0.9"}, sources{"west": {"10.2.0.2"}}, sources{"north": {"10.3.0.2"}}
	// When it is connected again, it does not take the others for stale either.
	checkGaps := watchForGaps(t, &fleet.Fleet{Members: []*fleet.Member{north}}, ns, map[string]sources{"web": all["web"], "solo": all["solo"]})
	for _, m := range f.Members {
		awaitImports(t, m, ns, all)
	}
	f.Consistently(t, "no endpoint is dropped", observationPeriod, func() error { return north.CheckAddresses(ns, "web", all["web"]) })
	checkGaps()
}

// The time that a member writes into its lease does not matter. A member whose clock is an hour off
// is alive while it renews its lease, and stale when it stops, even if its last renewal is in the
// future.
func TestClocksAnHourApart(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, east, ns, "web", "10.1.0.1")
	serve(t, west, ns, "web", "10.2.0.1")
	both := sources{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}
	north.AwaitImport(t, ns, "web", both)
	west.Stop()
	t.Cleanup(func() { start(t, west) })
	for _, offset := range []time.Duration{-time.Hour, time.Hour} {
		north.AwaitImport(t, ns, "web", both)
		renewLease(t, f, "west", offset)
		last := time.Now()
		harness.Consistently(t, fmt.Sprintf("a member whose clock is off by %s is alive", offset), observationPeriod+time.Second, func() error {
			if time.Since(last) > time.Second {
				renewLease(t, f, "west", offset)
				last = time.Now()
			}
			return north.CheckAddresses(ns, "web", both)
		})
		north.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}})
		renewLease(t, f, "west", offset) // alive again for the next offset
	}
}

// renewLease renews a member's lease with a time that is off by offset.
func renewLease(t *testing.T, f *fleet.Fleet, id string, offset time.Duration) {
	t.Helper()
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lease := &coordinationv1.Lease{}
		if err := f.Admin.Get(context.Background(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: id}, lease); err != nil {
			return err
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(offset)}
		return f.Admin.Update(context.Background(), lease)
	}))
}
