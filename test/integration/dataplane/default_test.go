package dataplane_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// setDefault sets whether services of the clusterset get a clusterset IP by default, as
// `seamark broker deploy --enable-clusterset-ip` does on a running broker.
func setDefault(t *testing.T, enabled bool) {
	t.Helper()
	if _, err := brokeradmin.Deploy(context.Background(), shared.Admin, brokeradmin.DeployOptions{EnableClusterSetIP: ptr.To(enabled)}); err != nil {
		t.Fatal(err)
	}
}

// awaitMode waits until a member's import is classic, or has a clusterset IP.
func awaitMode(t *testing.T, m *fleet.Member, ns, name string, classic bool) *mcsv1beta1.ServiceImport {
	t.Helper()
	count := 1
	if classic {
		count = 0
	}
	si := waitReachable(t, m, ns, name, count)
	if got := si.Annotations[v1alpha1.AnnotationMode] == v1alpha1.ModeClassic; got != classic {
		t.Fatalf("%s is classic: %t, want %t", name, got, classic)
	}
	return si
}

// The default of a running clusterset changes, and changes back. Running services keep their mode,
// also when another cluster exports them and when the agents restart; new ones follow the default.
func TestTheDefaultOfARunningClusterSetChanges(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	serve := func(m *fleet.Member, name, address string) {
		t.Helper()
		m.Serve(t, fleet.NewService(ns, name), address)
		m.Export(t, ns, name)
	}
	// A service that runs against the default has a conflict, from which it follows that the agent
	// knows the new default.
	awaitConflict := func(m *fleet.Member, name string) {
		t.Helper()
		m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, v1alpha1.ServiceExportReasonClusterSetIPConflict)
	}
	for i, m := range []*fleet.Member{east, west} {
		serve(m, "first-"+m.ID, fmt.Sprintf("10.%d.0.1", i+1))
	}
	first := awaitMode(t, north, ns, "first-east", false)
	awaitMode(t, north, ns, "first-west", false)

	t.Cleanup(func() { setDefault(t, true) })
	setDefault(t, false)
	awaitConflict(east, "first-east")
	awaitConflict(west, "first-west")
	serve(east, "second", "10.1.0.2")
	awaitMode(t, north, ns, "second", true)
	serve(west, "first-east", "10.2.0.2") // a younger exporter adopts what runs
	north.AwaitImport(t, ns, "first-east", map[string][]string{"east": {"10.1.0.1"}, "west": {"10.2.0.2"}})
	awaitConflict(west, "first-east")
	for _, m := range []*fleet.Member{east, west, north} {
		m.Stop()
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	serve(east, "third", "10.1.0.3") // the restarted agents work
	awaitMode(t, north, ns, "third", true)
	if si := awaitMode(t, north, ns, "first-east", false); si.UID != first.UID || !slices.Equal(si.Spec.IPs, first.Spec.IPs) {
		t.Errorf("the running service changed from %v to %v", first.Spec.IPs, si.Spec.IPs)
	}
	awaitMode(t, north, ns, "second", true)

	setDefault(t, true)
	harness.Eventually(t, "no conflict with the default", func() error {
		c, err := east.Condition(ns, "first-east", mcsv1beta1.ServiceExportConditionConflict)
		if err == nil && c.Status != metav1.ConditionFalse {
			err = fmt.Errorf("it is %s: %s", c.Reason, c.Message)
		}
		return err
	})
	awaitConflict(east, "second")
	serve(east, "fourth", "10.1.0.4")
	awaitMode(t, north, ns, "fourth", false)
	awaitMode(t, north, ns, "second", true)
	awaitMode(t, north, ns, "first-east", false)
	for m, names := range map[*fleet.Member][]string{east: {"first-east", "second", "third", "fourth"}, west: {"first-east", "first-west"}} {
		for _, name := range names {
			m.Unexport(t, ns, name)
		}
	}
}
