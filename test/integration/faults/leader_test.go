package faults_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// killsEnv names the environment variable for the number of times that TestLeaderKilled kills the
// leader.
const killsEnv = "SEAMARK_TEST_KILLS"

// The leader of two replicas is killed again and again. Electing the next one takes three times as
// long as the member's lease lasts, but the other replica renews the lease meanwhile: no importer
// drops an endpoint or takes the member for stale.
func TestLeaderKilled(t *testing.T) {
	kills := 3
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		must(t, err)
	}
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	serve(t, east, ns, "web", "10.1.0.1")
	serve(t, west, ns, "web", "10.2.0.1")
	both := sources{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}}
	west.Stop()
	leader, standby := west.Replica(), west.Replica()
	before := leaseOf(t, f, west.ID).Annotations[v1alpha1.AnnotationNonce]
	startReplica(t, leader)
	t.Cleanup(func() { leader.Kill(); standby.Kill(); start(t, west) })
	nonce := awaitLeader(t, f, west, before)
	startReplica(t, standby)
	importers := []*fleet.Member{east, north}
	for _, m := range importers {
		m.AwaitImport(t, ns, "web", both)
	}
	judged := make([]string, len(importers))
	for i, m := range importers {
		judged[i] = verdictsVersion(t, m)
	}
	checkGaps := watchForGaps(t, &fleet.Fleet{Members: importers}, ns, map[string]sources{"web": both})
	for range kills {
		leader.Kill()
		nonce = awaitLeader(t, f, west, nonce)
		startReplica(t, leader)
		leader, standby = standby, leader
	}
	checkGaps()
	for i, m := range importers {
		if now := verdictsVersion(t, m); now != judged[i] {
			t.Errorf("%s took a member for stale", m.ID)
		}
	}
	// The last leader works.
	changeEndpoints(t, west, ns, "web", "10.2.0.9")
	north.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}, "west": {"10.2.0.9"}})
}

// startReplica starts a replica and waits until it is ready: a replica that is still starting
// cannot renew the lease for the leader.
func startReplica(t *testing.T, m *fleet.Member) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	probes := listener.Addr().String()
	must(t, listener.Close())
	m.StartProcess(t, "--leader-elect", "--health-probe-bind-address="+probes)
	harness.Eventually(t, "a replica in "+m.ID+" is ready", func() error {
		response, err := http.Get("http://" + probes + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", response.Status)
		}
		return nil
	})
}

// awaitLeader waits until another replica than before leads the agents of a member and has renewed
// the lease on the broker, and returns its nonce.
func awaitLeader(t *testing.T, f *fleet.Fleet, m *fleet.Member, before string) (nonce string) {
	t.Helper()
	harness.Eventually(t, "a new leader in "+m.ID, func() error {
		if nonce = leaseOf(t, f, m.ID).Annotations[v1alpha1.AnnotationNonce]; nonce == "" || nonce == before {
			return fmt.Errorf("the nonce is %q", nonce)
		}
		return nil
	})
	return nonce
}

// verdictsVersion returns the version of what a member has stored about stale members.
func verdictsVersion(t *testing.T, m *fleet.Member) string {
	t.Helper()
	stored := &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.LivenessConfigMap}
	must(t, client.IgnoreNotFound(m.Client.Get(context.Background(), key, stored)))
	return stored.ResourceVersion
}
