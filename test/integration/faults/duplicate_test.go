package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// duplicateOf makes the spare cluster a duplicate of a member: it has a copy of the membership,
// like a cluster that was restored from a backup of another one. Its agent is not started.
func duplicateOf(t *testing.T, m *fleet.Member) *fleet.Member {
	t.Helper()
	ctx := context.Background()
	c, err := brokeradmin.NewClient(spare.Config())
	must(t, err)
	_, err = crds.Install(ctx, c, crds.Member)
	must(t, err)
	secret := &corev1.Secret{}
	must(t, m.Client.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret))
	duplicate := &fleet.Member{ID: "duplicate of " + m.ID, CP: spare, Client: c, Agent: m.Agent}
	duplicate.Agent.Local = spare.Config()
	duplicate.Namespace(t, objects.AgentNamespace)
	duplicate.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}, Data: secret.Data,
	})
	return duplicate
}

// Two clusters have the same id. While the first one renews its lease, the second one publishes
// nothing, changes nothing, and its exports report why. It takes over when the lease of the first
// one ends.
func TestTwoAgentsWithTheSameID(t *testing.T) {
	f := clusterset(t)
	west, north := f.Members[1], f.Members[2]
	duplicate := duplicateOf(t, west)
	duplicate.Agent.WithdrawalHold = time.Second // it lacks most of what the first one has published
	ns := fleet.NewNamespace(t, append([]*fleet.Member{duplicate}, f.Members...)...)
	serve(t, west, ns, "web", "10.2.0.1")
	serve(t, west, ns, "only-first", "10.2.0.2")
	serve(t, duplicate, ns, "web", "10.9.0.1")
	serve(t, duplicate, ns, "only-second", "10.9.0.2")
	first := map[string]sources{"web": {"west": {"10.2.0.1"}}, "only-first": {"west": {"10.2.0.2"}}}
	awaitImports(t, north, ns, first)
	awaitNoWrites(t, f.Broker, west.CP, north.CP)
	before, err := versions(f.Admin, ns, true)
	must(t, err)
	unchanged := unchangedCheck(t, ns, f.Members...)
	start(t, duplicate)
	t.Cleanup(duplicate.Stop)
	awaitNotReady(t, duplicate, ns, "only-second", v1alpha1.ServiceExportReasonClusterIDTaken)
	harness.Consistently(t, "nothing changes for the first cluster", observationPeriod, func() error {
		after, err := versions(f.Admin, ns, true)
		if err != nil {
			return err
		}
		if changed := changedObjects(before, after); len(changed) > 0 {
			return fmt.Errorf("on the broker: %v", changed)
		}
		return unchanged()
	})
	awaitNotReady(t, duplicate, ns, "only-second", v1alpha1.ServiceExportReasonClusterIDTaken, "used by another cluster", "seamark leave")
	// Both agents run: changes in the first cluster are still published.
	changeEndpoints(t, west, ns, "web", "10.2.0.9")
	north.AwaitImport(t, ns, "web", sources{"west": {"10.2.0.9"}})

	west.Stop()
	second := map[string]sources{"web": {"west": {"10.9.0.1"}}, "only-second": {"west": {"10.9.0.2"}}}
	awaitImports(t, north, ns, second)
	duplicate.AwaitExported(t, ns, "only-second")
	// The first agent starts again too late: the second cluster holds the id now.
	start(t, west)
	harness.Consistently(t, "nothing changes for the second cluster", observationPeriod, func() error {
		return north.CheckAddresses(ns, "web", second["web"])
	})
	awaitImports(t, north, ns, second)
	duplicate.Stop()
	first["web"]["west"] = []string{"10.2.0.9"}
	awaitImports(t, north, ns, first)
}
