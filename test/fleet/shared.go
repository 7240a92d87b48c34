package fleet

import (
	"context"
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/test/controlplane"
)

// Started returns a new clusterset whose agents run in this process until the test ends.
func Started(t testing.TB, host *controlplane.ControlPlane, cps []*controlplane.ControlPlane, o Options) *Fleet {
	t.Helper()
	f, err := newStarted(host, cps, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return f
}

// Shared is a clusterset that the tests of a package share.
type Shared struct {
	once  sync.Once
	fleet *Fleet
	err   error
}

// Get returns the clusterset. The first call creates it with these arguments and starts its agents;
// later calls ignore their arguments.
func (s *Shared) Get(t testing.TB, host *controlplane.ControlPlane, cps []*controlplane.ControlPlane, o Options) *Fleet {
	t.Helper()
	s.once.Do(func() { s.fleet, s.err = newStarted(host, cps, o) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.fleet
}

func newStarted(host *controlplane.ControlPlane, cps []*controlplane.ControlPlane, o Options) (*Fleet, error) {
	f, err := New(context.Background(), host, cps, o)
	if err != nil {
		return nil, err
	}
	return f, f.Start()
}
