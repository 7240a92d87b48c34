package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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

// keepsStale waits until an import is ready and has the condition StaleEndpointsKept with this text,
// or with no text until it does not have the condition.
func keepsStale(t *testing.T, m *fleet.Member, ns, name, text string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("StaleEndpointsKept of %s/%s in %s says %q", ns, name, m.ID, text), func() error {
		si, err := m.Import(ns, name)
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		kept := meta.FindStatusCondition(si.Status.Conditions, string(v1alpha1.ServiceImportConditionStaleEndpointsKept))
		switch {
		case ready == nil || ready.Status != metav1.ConditionTrue || strings.Contains(ready.Message, "heard from"):
		case text == "" && kept == nil, text != "" && kept != nil && strings.Contains(kept.Message, text):
			return nil
		}
		return fmt.Errorf("it says %+v", si.Status.Conditions)
	})
}

func staleEndpoints(t *testing.T, f *fleet.Fleet, policy v1alpha1.StaleEndpointsPolicy) {
	t.Helper()
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set := &v1alpha1.ClusterSet{}
		if err := f.Admin.Get(context.Background(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: brokeradmin.DefaultClusterSet}, set); err != nil {
			return err
		}
		set.Spec.StaleEndpoints = policy
		return f.Admin.Update(context.Background(), set)
	}))
}

// A silent member's endpoints go where another cluster serves the service and stay where none does, unless the clusterset says
// otherwise; when it is back, they are.
func TestSilentMember(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, east, ns, "both", "10.1.0.1")
	serve(t, west, ns, "both", "10.2.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	// Another cluster that has no ready endpoint serves nothing: that must not take the last ones away.
	east.Create(t, fleet.NewService(ns, "empty"))
	east.Export(t, ns, "empty")
	serve(t, west, ns, "empty", "10.2.0.3")
	all := map[string]sources{
		"both": {"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}, "solo": {"west": {"10.2.0.2"}}, "empty": {"west": {"10.2.0.3"}},
	}
	importsExactly(t, north, ns, all)
	keepsStale(t, north, ns, "solo", "")
	west.Stop()
	t.Cleanup(func() { west.Stop(); start(t, west) })

	imported(t, north, ns, "both", sources{"east": {"10.1.0.1"}})
	imported(t, east, ns, "both", sources{"east": {"10.1.0.1"}})
	imported(t, north, ns, "solo", sources{"west": {"10.2.0.2"}})
	imported(t, north, ns, "empty", sources{"west": {"10.2.0.3"}})
	keepsStale(t, north, ns, "solo", "cluster west has not been heard from")
	keepsStale(t, north, ns, "empty", "cluster west has not been heard from")
	keepsStale(t, north, ns, "both", "")

	staleEndpoints(t, f, v1alpha1.StaleEndpointsRemove)
	t.Cleanup(func() { staleEndpoints(t, f, v1alpha1.StaleEndpointsFailover) })
	imported(t, north, ns, "solo", sources{})
	imported(t, north, ns, "empty", sources{})
	imported(t, north, ns, "both", sources{"east": {"10.1.0.1"}})
	staleEndpoints(t, f, v1alpha1.StaleEndpointsFailover)
	imported(t, north, ns, "solo", sources{"west": {"10.2.0.2"}})

	// While it is silent a new exporter takes over the service it served alone.
	serve(t, east, ns, "solo", "10.1.0.2")
	imported(t, north, ns, "solo", sources{"east": {"10.1.0.2"}})
	start(t, west)
	all["solo"]["east"] = []string{"10.1.0.2"}
	for _, m := range f.Members {
		importsExactly(t, m, ns, all)
	}
	keepsStale(t, north, ns, "empty", "")
}

// A member that is cut off is deaf, not alone: it drops nobody, while the others drop it.
func TestCutOffObserverDropsNobody(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	w := ownWire(t, f, north)
	all := map[string]sources{"web": {}}
	for i, m := range f.Members {
		serve(t, m, ns, "web", fmt.Sprintf("10.%d.0.1", i+1))
		all["web"][m.ID] = []string{fmt.Sprintf("10.%d.0.1", i+1)}
	}
	serve(t, east, ns, "solo", "10.1.0.2")
	all["solo"] = sources{"east": {"10.1.0.2"}}
	for _, m := range f.Members {
		importsExactly(t, m, ns, all)
	}
	quiet(t, east.CP, west.CP, north.CP)
	unchanged := frozen(t, ns, north)
	w.cutOff()
	imported(t, east, ns, "web", sources{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}) // the others have judged it
	harness.Consistently(t, "the member that is cut off keeps everything", 2*time.Second, unchanged)
	serve(t, west, ns, "meanwhile", "10.2.0.2")
	changeEndpoints(t, north, ns, "web", "10.3.0.9")
	imported(t, north, ns, "web", sources{"east": {"10.1.0.1"}, "north": {"10.3.0.9"}, "west": {"10.2.0.1"}})
	serve(t, north, ns, "cut", "10.3.0.2")
	if message := pending(t, north, ns, "cut"); !strings.Contains(message, "waiting for the broker") {
		t.Errorf("message: %s", message)
	}
	w.heal()
	all["web"]["north"], all["meanwhile"], all["cut"] = []string{"10.3.0.9"}, sources{"west": {"10.2.0.2"}}, sources{"north": {"10.3.0.2"}}
	// Nor does it, on hearing again, take the others for silent.
	dropped := watchImports(t, &fleet.Fleet{Members: []*fleet.Member{north}}, ns, map[string]sources{"web": all["web"], "solo": all["solo"]})
	for _, m := range f.Members {
		importsExactly(t, m, ns, all)
	}
	harness.Consistently(t, "nobody is dropped", still, func() error { return sameAddresses(north, ns, "web", all["web"]) })
	dropped()
}

// What time a member writes into its lease does not matter: one an hour ahead or behind is alive while it renews, and silent
// when it stops, even if its last renewal lies in the future.
func TestClocksAnHourApart(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, east, ns, "web", "10.1.0.1")
	serve(t, west, ns, "web", "10.2.0.1")
	both := sources{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}
	imported(t, north, ns, "web", both)
	west.Stop()
	t.Cleanup(func() { start(t, west) })
	for _, offset := range []time.Duration{-time.Hour, time.Hour} {
		imported(t, north, ns, "web", both)
		beat(t, f, "west", offset)
		last := time.Now()
		harness.Consistently(t, fmt.Sprintf("a member whose clock is off by %s is alive", offset), still+time.Second, func() error {
			if time.Since(last) > time.Second {
				beat(t, f, "west", offset)
				last = time.Now()
			}
			return sameAddresses(north, ns, "web", both)
		})
		imported(t, north, ns, "web", sources{"east": {"10.1.0.1"}})
		beat(t, f, "west", offset) // alive again, for the next round
	}
}

// beat renews a member's lease as its agent would if its clock were off.
func beat(t *testing.T, f *fleet.Fleet, id string, offset time.Duration) {
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
