package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// twinOf returns a second cluster restored from a backup of a member, which is not started: it has
// the same id, the same credential and the same uids.
func twinOf(t *testing.T, m *fleet.Member) *fleet.Member {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "twin")
	must(t, m.CP.CopyTo(t.Context(), dir))
	cp := harness.Fresh(t, 1, func(o *controlplane.Options) { o.Dir = dir })[0]
	c, err := brokeradmin.NewClient(cp.Config())
	must(t, err)
	twin := &fleet.Member{ID: "twin of " + m.ID, CP: cp, Client: c, Agent: m.Agent}
	twin.Agent.Local = cp.Config()
	return twin
}

// Two clusters are restored from one backup, so not even their uids differ. While the first one
// runs, the second one publishes, withdraws and imports nothing, and both say so. It takes over
// when the first one is gone for good. A cluster whose own API server is restored to an older state
// is no second cluster: it goes on.
func TestClustersRestoredFromOneBackup(t *testing.T) {
	t.Parallel()
	fleet.AgentBinary(t) // building it takes longer than the lease lasts
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(t.Context(), cps[0], cps, fleet.Options{RenewEvery: time.Second, LeaseDuration: 10 * time.Second})
	must(t, err)
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east, west)
	serve(t, west, ns, "web", "10.2.0.1")
	restore, err := west.CP.Snapshot(t.Context())
	must(t, err)
	twin := twinOf(t, west)
	must(t, f.Start())
	t.Cleanup(f.Stop)
	first := sources{"west": {"10.2.0.1"}}
	east.AwaitImport(t, ns, "web", first)
	west.AwaitExported(t, ns, "web")
	before, err := versions(f.Admin, ns, true)
	must(t, err)

	// An agent that published would withdraw the first cluster's service.
	twin.Unexport(t, ns, "web")
	serve(t, twin, ns, "second", "10.9.0.1")
	start(t, twin)
	t.Cleanup(twin.Stop)
	awaitNotReady(t, twin, ns, "second", v1alpha1.ServiceExportReasonClusterIDTaken, "used by a copy of this cluster", "seamark leave")
	awaitMark(t, f, west)
	harness.Consistently(t, "nothing changes on the broker", observationPeriod, func() error {
		after, err := versions(f.Admin, ns, true)
		if err != nil {
			return err
		}
		if changed := changedObjects(before, after); len(changed) > 0 {
			return fmt.Errorf("on the broker: %v", changed)
		}
		return nil
	})
	changeEndpoints(t, west, ns, "web", "10.2.0.9")
	east.AwaitImport(t, ns, "web", sources{"west": {"10.2.0.9"}})

	// The first cluster's agent restarts, which does not let the second one in.
	west.Stop()
	west.StartProcess(t)
	serve(t, west, ns, "more", "10.2.0.2")
	east.AwaitImport(t, ns, "more", sources{"west": {"10.2.0.2"}})
	west.Kill()
	east.AwaitImport(t, ns, "second", sources{"west": {"10.9.0.1"}})
	east.AwaitNoImport(t, ns, "web")

	// The first cluster comes back too late. When it leaves, it deletes nothing of the second one.
	west.Agent.LeaderElection = true
	start(t, west)
	awaitNotReady(t, west, ns, "web", v1alpha1.ServiceExportReasonClusterIDTaken, "used by a copy of this cluster")
	awaitMark(t, f, twin)
	left, err := brokeradmin.Leave(t.Context(), west.Client)
	must(t, err)
	if left.Withdrawn || !strings.Contains(left.Problem, "another cluster") {
		t.Errorf("leave: %+v", left)
	}
	must(t, east.CheckAddresses(ns, "second", sources{"west": {"10.9.0.1"}}))
	west.Stop()

	// Both are gone. The first one is restored to a state from before its agent last wrote to the
	// broker.
	twin.Stop()
	must(t, restore(t.Context()))
	start(t, west)
	east.AwaitImport(t, ns, "web", first)
	west.AwaitExported(t, ns, "web")
}

// awaitMark waits until the lease has the mark of a second cluster, and the cluster that holds it
// has logged that.
func awaitMark(t *testing.T, f *fleet.Fleet, holder *fleet.Member) {
	t.Helper()
	harness.Eventually(t, "both clusters say that there are two", func() error {
		lease := leaseOf(t, f, "west")
		if lease.Annotations[v1alpha1.AnnotationDuplicate] == "" {
			return fmt.Errorf("the lease is not marked: %v", lease.Annotations)
		}
		log, err := os.ReadFile(filepath.Join(filepath.Dir(holder.CP.Logs()[0]), "agent-"+holder.ID+".log"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(log), "a copy of this cluster runs with the same id") {
			return fmt.Errorf("%s has not logged it", holder.ID)
		}
		return nil
	})
}
