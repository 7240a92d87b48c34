package agent_test

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// With CreateNamespaces, missing namespaces are created. With LeaderElection, another replica takes
// over when the leader stops.
func TestCreateNamespacesAndLeaderElection(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	east, west := f.Members[0], f.Members[1]
	west.Agent.CreateNamespaces = true
	if err := west.Start(); err != nil {
		t.Fatal(err)
	}
	defer west.Stop()
	east.Agent.LeaderElection = true
	stopFirst, stopSecond := replica(t, east), replica(t, east)
	defer stopSecond()

	ns := fleet.NewNamespace(t, east)
	east.Serve(t, fleet.NewService(ns, "one"), "10.1.0.1")
	east.Export(t, ns, "one")
	west.AwaitImport(t, ns, "one", map[string][]string{"east": {"10.1.0.1"}})

	stopFirst()
	east.Serve(t, fleet.NewService(ns, "two"), "10.1.0.2")
	east.Export(t, ns, "two")
	east.AwaitExported(t, ns, "two")
	west.AwaitImport(t, ns, "two", map[string][]string{"east": {"10.1.0.2"}})

	// The second replica leads now, whichever led before.
	stopThird := replica(t, east)
	defer stopThird()
	stopSecond()
	east.Unexport(t, ns, "two")
	west.AwaitNoImport(t, ns, "two")

	// The agent deletes no namespace, also not one that it created and that has no import any more:
	// it cannot know what users put there. The label says which ones it created.
	east.Unexport(t, ns, "one")
	west.AwaitNoImport(t, ns, "one")
	created := &corev1.Namespace{}
	if err := west.Client.Get(context.Background(), types.NamespacedName{Name: ns}, created); err != nil {
		t.Fatal(err)
	}
	if created.DeletionTimestamp != nil || created.Labels[objects.LabelManagedBy] != objects.ManagedBySeamark {
		t.Errorf("the namespace is %+v", created.ObjectMeta)
	}
}

// replica starts one more agent of a member and returns a function that stops it.
func replica(t *testing.T, m *fleet.Member) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := agent.Run(ctx, m.Agent); err != nil {
			t.Errorf("a replica of %s: %v", m.ID, err)
		}
	})
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}
