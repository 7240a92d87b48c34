package faults_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// A member is stale, and its endpoints are dropped. They stay so when the agent that dropped them
// restarts and when another replica takes over, with no write at all. They come back with the
// member, also if it returns while the agent is down.
func TestStaleMemberStaysStaleAfterARestart(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, east, ns, "both", "10.1.0.1")
	serve(t, west, ns, "both", "10.2.0.1")
	serve(t, west, ns, "solo", "10.2.0.2")
	both := sources{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}
	north.AwaitImport(t, ns, "both", both)
	north.AwaitImport(t, ns, "solo", sources{"west": {"10.2.0.2"}})
	north.Stop()
	north.Agent.LeaderElection = true
	start(t, north)
	t.Cleanup(func() {
		north.Stop()
		north.Agent.LeaderElection = false
		start(t, north)
	})
	north.AwaitImport(t, ns, "both", both)
	west.Stop()
	t.Cleanup(func() { west.Stop(); start(t, west) })
	north.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.1"}})
	awaitStaleEndpointsKept(t, north, ns, "solo")
	awaitDemoted(t, f, west.ID, east.ID, north.ID) // what the living then decide about services of other tests is written

	cps := []*controlplane.ControlPlane{north.CP}
	before := awaitNoWrites(t, cps...)
	unchanged := unchangedCheck(t, ns, north)
	stays := func(what string) {
		t.Helper()
		f.Consistently(t, "nothing changes after "+what, observationPeriod, unchanged)
		for what, n := range awaitNoWrites(t, cps...)[0] {
			// Leader election reports each new leader in an event.
			if extra := n - before[0][what]; extra > 0 && what != "POST events/" {
				t.Errorf("%d × %s", extra, what)
			}
		}
	}
	north.Stop()
	start(t, north)
	stays("a restart")
	standby := north.Replica()
	start(t, standby)
	t.Cleanup(standby.Stop)
	north.Stop()
	stays("a change of leader")

	// Both agents worked: the leader imports changes of members that are alive.
	changeEndpoints(t, east, ns, "both", "10.1.0.9")
	north.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.9"}})
	standby.Stop()
	start(t, west)
	west.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.1"}})
	start(t, north)
	north.AwaitImport(t, ns, "both", sources{"east": {"10.1.0.9"}, "west": {"10.2.0.1"}})
	awaitNoStaleEndpointsKept(t, north, ns, "solo")
	harness.Eventually(t, "no verdict is stored", func() error {
		stored := &corev1.ConfigMap{}
		key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.LivenessConfigMap}
		if err := north.Client.Get(context.Background(), key, stored); err != nil {
			return err
		}
		if len(stored.Data) > 0 {
			return fmt.Errorf("there are %v", stored.Data)
		}
		return nil
	})
}

// awaitDemoted waits until members say in their Clusters that a stale one has no precedence.
func awaitDemoted(t *testing.T, f *fleet.Fleet, stale string, living ...string) {
	t.Helper()
	harness.Eventually(t, stale+" has lost its precedence", func() error {
		for _, member := range living {
			cluster, key := &v1alpha1.Cluster{}, types.NamespacedName{Namespace: objects.DefaultNamespace, Name: member}
			if err := f.Admin.Get(context.Background(), key, cluster); err != nil {
				return err
			}
			if !slices.Contains(cluster.Status.Demoted, stale) {
				return fmt.Errorf("%s does not demote it", member)
			}
		}
		return nil
	})
}
