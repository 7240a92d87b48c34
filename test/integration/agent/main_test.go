// Package agent_test runs whole clustersets on real API servers: brokers, members that joined by invitation, and agents as
// they are shipped. There are no pods here, so tests write EndpointSlices as the endpointslice controller would.
package agent_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var (
	sharedOnce sync.Once
	shared     *fleet.Fleet
	errShared  error
)

// clusterset is a fleet of three that the tests of this package share, with the broker on the first member. Each test uses
// namespaces of its own.
func clusterset(t *testing.T) *fleet.Fleet {
	t.Helper()
	cps := harness.Clusters(t, 3)
	sharedOnce.Do(func() {
		shared, errShared = fleet.New(context.Background(), cps[0], cps, fleet.Options{})
		if errShared == nil {
			errShared = shared.Start()
		}
	})
	if errShared != nil {
		t.Fatal(errShared)
	}
	return shared
}

// sameAddresses checks the addresses a member imported, by source cluster.
func sameAddresses(m *fleet.Member, ns, name string, want map[string][]string) error {
	got, err := m.Addresses(ns, name)
	if err != nil {
		return err
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s imported %v, want %v", m.ID, got, want)
	}
	return nil
}
