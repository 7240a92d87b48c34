// Package faults_test tests what the agent does when something fails: agents are killed, brokers
// are stopped, paused, cut off or restored from an older snapshot, members are stale, removed or
// duplicated, and users edit objects that the agents own. Everything runs on real API servers.
package faults_test

import (
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var (
	sharedLock sync.Mutex
	shared     fleet.Shared
	// spare is a control plane that is no member.
	spare *controlplane.ControlPlane
)

// clusterset returns the clusterset of three members that is shared by the tests that leave the API
// servers alone. These tests run one after the other, in parallel with the tests that have control
// planes of their own. The broker is on the first member. A test that stops an agent starts it
// again.
func clusterset(t *testing.T) *fleet.Fleet {
	t.Helper()
	t.Parallel()
	sharedLock.Lock()
	t.Cleanup(sharedLock.Unlock)
	cps := harness.Clusters(t, 4)
	spare = cps[3]
	return shared.Get(t, cps[0], cps[:3], fleet.Options{})
}

// serve makes a member export a service with these addresses.
func serve(t *testing.T, m *fleet.Member, ns, name string, addresses ...string) {
	t.Helper()
	m.Serve(t, fleet.NewService(ns, name), addresses...)
	m.Export(t, ns, name)
}

// start starts a member's agent again after a test stopped it.
func start(t *testing.T, m *fleet.Member) {
	t.Helper()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
}

// must fails the test on an error of a step that is not under test.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sources are the imported addresses of a service, by source cluster.
type sources map[string][]string
