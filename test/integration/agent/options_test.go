package agent_test

import (
	"context"
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// Options that are off by default do what they say: missing namespaces are created, and of two replicas one works until it
// goes and the other takes over.
func TestOptions(t *testing.T) {
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
	imported(t, west, ns, "one", map[string][]string{"east": {"10.1.0.1"}})

	stopFirst()
	east.Serve(t, fleet.NewService(ns, "two"), "10.1.0.2")
	east.Export(t, ns, "two")
	exportedAndReady(t, east, ns, "two")
	imported(t, west, ns, "two", map[string][]string{"east": {"10.1.0.2"}})

	// By now the second one leads, whichever did before.
	stopThird := replica(t, east)
	defer stopThird()
	stopSecond()
	east.Unexport(t, ns, "two")
	notImported(t, west, ns, "two")
}

// replica runs one more agent of a member and returns what ends it.
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
