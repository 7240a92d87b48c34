package bridge_test

import (
	"errors"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// Of two replicas one works. When it is killed, the other one goes on. Their leases are so short
// that Seamark's members take east for silent meanwhile.
func twoReplicas(t *testing.T, m *mixed, ns string) {
	m.killBridge()
	args := []string{"--leader-elect", "--lease-duration=2s"}
	m.startBridge(args...)
	m.awaitLogged(t, "read both brokers")
	active := m.process
	m.startBridge(args...)
	standby := m.process
	m.awaitLogged(t, "Attempting to acquire leader lease")
	before := populate(t, m, ns, 2)

	m.process = active
	m.killBridge()
	m.process = standby
	m.shortenLease(t)
	fromEast := m.exportInLighthouse(t, fleet.NewService(ns, "late-east"), "10.1.0.1")
	fromWest := m.exportInSeamark(t, fleet.NewService(ns, "late-west"), "10.2.0.1")
	m.awaitLogged(t, "read both brokers")
	m.awaitLighthouse(t, ns, "late-west", fromWest.Spec.ClusterIP)
	m.west().AwaitImport(t, ns, "late-east", map[string][]string{"east": {fromEast.Spec.ClusterIP}})
	after := m.awaitQuiet(t)
	for name := range before {
		if _, exists := after[name]; !exists {
			t.Errorf("%s is gone after a replica was killed", name)
		}
	}

	m.endBridge(t)
	lease := m.leaderLease(t)
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
		t.Errorf("the replica that ended still holds the lease as %s: the next one would have to wait", holder)
	}
	m.startBridge()
}

func (m *mixed) leaderLease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := m.local.Get(t.Context(), client.ObjectKey{Namespace: objects.AgentNamespace, Name: objects.BridgeName}, lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

// shortenLease makes the lease of a leader that was killed end after a second. The leader asked for
// fifteen. The other replica looks at it every two seconds.
func (m *mixed) shortenLease(t *testing.T) {
	t.Helper()
	lease := m.leaderLease(t)
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](1)
	if err := m.local.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// endBridge ends the bridge as the kubelet does (SIGTERM), and waits until it has ended.
func (m *mixed) endBridge(t *testing.T) {
	t.Helper()
	process := m.process
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	harness.Eventually(t, "the bridge ends", func() error {
		select {
		case err := <-ended:
			if m.process = nil; err != nil {
				t.Errorf("the bridge ended with %v; its log is %s", err, m.bridgeLog())
			}
			return nil
		default:
			return errors.New("it runs")
		}
	})
}
