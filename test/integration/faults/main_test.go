// Package faults_test shows what the agent does when things are down: agents killed, brokers stopped, paused, cut off or set
// back, members silent, removed or doubled, and people who edit what is not theirs. Everything runs on real API servers.
package faults_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var (
	turn       sync.Mutex
	sharedOnce sync.Once
	shared     *fleet.Fleet
	spare      *controlplane.ControlPlane
	errShared  error
)

// clusterset is a fleet of three that the tests share which leave the API servers alone, one after the other, beside those that
// do not. The broker is on the first member. A test that stops an agent starts it again.
func clusterset(t *testing.T) *fleet.Fleet {
	t.Helper()
	t.Parallel()
	turn.Lock()
	t.Cleanup(turn.Unlock)
	cps := harness.Clusters(t, 4)
	sharedOnce.Do(func() {
		spare = cps[3]
		shared, errShared = fleet.New(context.Background(), cps[0], cps[:3], fleet.Options{})
		if errShared == nil {
			errShared = shared.Start()
		}
	})
	if errShared != nil {
		t.Fatal(errShared)
	}
	return shared
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

// must fails the test on an error of something that is no part of what is tested.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sources is what a service's imported addresses should be, by source cluster.
type sources map[string][]string

// sameAddresses checks the addresses a member imported, by source cluster.
func sameAddresses(m *fleet.Member, ns, name string, want sources) error {
	got, err := m.Addresses(ns, name)
	if err != nil {
		return err
	}
	if fmt.Sprint(got) != fmt.Sprint(map[string][]string(want)) {
		return fmt.Errorf("%s imported %v of %s, want %v", m.ID, got, name, want)
	}
	return nil
}
