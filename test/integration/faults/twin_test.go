package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

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

// twinOf makes the spare cluster a double of a member: it has a copy of the membership, as a cluster that was restored from
// another's backup has. Its agent is not started.
func twinOf(t *testing.T, m *fleet.Member) *fleet.Member {
	t.Helper()
	ctx := context.Background()
	c, err := brokeradmin.NewClient(spare.Config())
	must(t, err)
	_, err = crds.Install(ctx, c, crds.Member)
	must(t, err)
	secret := &corev1.Secret{}
	must(t, m.Client.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret))
	twin := &fleet.Member{ID: "twin of " + m.ID, CP: spare, Client: c, Agent: m.Agent}
	twin.Agent.Local = spare.Config()
	twin.Namespace(t, objects.AgentNamespace)
	twin.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}, Data: secret.Data,
	})
	return twin
}

// Two clusters with one id: the second publishes nothing and disturbs nobody while the first lives, says so, and takes over when
// the first is gone for good.
func TestTwoAgentsWithTheSameID(t *testing.T) {
	f := clusterset(t)
	west, north := f.Members[1], f.Members[2]
	twin := twinOf(t, west)
	ns := fleet.NewNamespace(t, append([]*fleet.Member{twin}, f.Members...)...)
	serve(t, west, ns, "web", "10.2.0.1")
	serve(t, west, ns, "only-first", "10.2.0.2")
	serve(t, twin, ns, "web", "10.9.0.1")
	serve(t, twin, ns, "only-second", "10.9.0.2")
	first := map[string]sources{"web": {"west": {"10.2.0.1"}}, "only-first": {"west": {"10.2.0.2"}}}
	importsExactly(t, north, ns, first)
	quiet(t, f.Broker, west.CP, north.CP)
	before, err := versions(f.Admin, ns, true)
	must(t, err)
	unchanged := frozen(t, ns, f.Members...)
	start(t, twin)
	t.Cleanup(twin.Stop)
	ready(t, twin, ns, "only-second", metav1.ConditionFalse, v1alpha1.ServiceExportReasonClusterIDTaken)
	harness.Consistently(t, "the first is not disturbed", still, func() error {
		after, err := versions(f.Admin, ns, true)
		if err != nil {
			return err
		}
		if changed := difference(before, after); len(changed) > 0 {
			return fmt.Errorf("on the broker: %v", changed)
		}
		return unchanged()
	})
	taken := ready(t, twin, ns, "only-second", metav1.ConditionFalse, v1alpha1.ServiceExportReasonClusterIDTaken)
	if message := taken.Message; !strings.Contains(message, "used by another cluster") || !strings.Contains(message, "seamark leave") {
		t.Errorf("the second's export says %q: want that the id is in use, and what to do", message)
	}
	// Both go on living: a change of the first still goes through.
	changeEndpoints(t, west, ns, "web", "10.2.0.9")
	imported(t, north, ns, "web", sources{"west": {"10.2.0.9"}})

	west.Stop()
	second := map[string]sources{"web": {"west": {"10.9.0.1"}}, "only-second": {"west": {"10.9.0.2"}}}
	importsExactly(t, north, ns, second)
	exported(t, twin, ns, "only-second")
	// The first comes back too late: the id is the other's now.
	start(t, west)
	harness.Consistently(t, "the second is not disturbed", still, func() error {
		return sameAddresses(north, ns, "web", second["web"])
	})
	importsExactly(t, north, ns, second)
	twin.Stop()
	first["web"]["west"] = []string{"10.2.0.9"}
	importsExactly(t, north, ns, first)
}
