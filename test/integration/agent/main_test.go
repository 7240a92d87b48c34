// Package agent_test runs whole clustersets on real API servers: brokers, members that joined by
// invitation, and agents. There are no pods, so tests write EndpointSlices as the endpointslice
// controller would.
package agent_test

import (
	"testing"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var shared fleet.Shared

// clusterset returns the clusterset of three members that the tests of this package share. The
// broker is on the first member. Each test uses namespaces of its own.
func clusterset(t *testing.T) *fleet.Fleet {
	t.Helper()
	cps := harness.Clusters(t, 3)
	return shared.Get(t, cps[0], cps, fleet.Options{})
}
