package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// In a clusterset of very many members each renews its lease less often, and the lease lasts longer
// in proportion. A replica that does not lead knows no other members; it follows the lease, and
// does not renew it for a leader that is alive. When members leave, leases are short again.
func TestLeasesOfManyMembers(t *testing.T) {
	f := clusterset(t)
	west := f.Members[1]
	many := make([]*v1alpha1.Cluster, 200) // with those of the test four times as many as renew each second
	inParallel(t, len(many), func(i int) {
		many[i] = &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: fmt.Sprintf("one-of-many-%d", i)}}
		must(t, f.Admin.Create(context.Background(), many[i]))
	})
	removeAll := func() {
		inParallel(t, len(many), func(i int) { _ = f.Admin.Delete(context.Background(), many[i]) })
	}
	t.Cleanup(removeAll)
	short := west.Agent.LeaseDuration
	for _, m := range f.Members {
		awaitLeaseDuration(t, f, m, 4*short)
	}

	west.Stop()
	leader, standby := west.Replica(), west.Replica()
	t.Cleanup(func() { leader.Kill(); standby.Kill(); start(t, west) })
	before := leaseOf(t, f, west.ID).Annotations[v1alpha1.AnnotationNonce]
	startReplica(t, leader)
	nonce := awaitLeader(t, f, west, before)
	awaitLeaseDuration(t, f, west, 4*short)
	startReplica(t, standby)
	stoodIn := timesStoodIn(t, standby)
	first := awaitRenewalAfter(t, f, west, lastRenewal(t, f, west.ID))
	second := awaitRenewalAfter(t, f, west, first)
	if interval := second.Sub(first); interval < 3*west.Agent.RenewEvery {
		t.Errorf("it was renewed again after %v, want four times %v", interval, west.Agent.RenewEvery)
	}
	if timesStoodIn(t, standby) > stoodIn {
		t.Error("a replica renewed the lease for a leader that is alive")
	}
	leader.Kill()
	awaitLeader(t, f, west, nonce)

	removeAll()
	for _, m := range f.Members {
		awaitLeaseDuration(t, f, m, short)
	}
}

func awaitLeaseDuration(t *testing.T, f *fleet.Fleet, m *fleet.Member, want time.Duration) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("the lease of %s lasts %v", m.ID, want), func() error {
		if got := objects.LeaseDurationOf(leaseOf(t, f, m.ID)); got != want {
			return fmt.Errorf("it lasts %v", got)
		}
		return nil
	})
}

// awaitRenewalAfter waits until the lease has another renewal than this one, and returns it.
func awaitRenewalAfter(t *testing.T, f *fleet.Fleet, m *fleet.Member, last time.Time) (renewal time.Time) {
	t.Helper()
	harness.Eventually(t, m.ID+" renews its lease", func() error {
		if renewal = lastRenewal(t, f, m.ID); renewal.Equal(last) {
			return fmt.Errorf("its last renewal was at %v", last)
		}
		return nil
	})
	return renewal
}

// timesStoodIn returns how often a replica of the member has renewed the lease for the leader, as
// its log says.
func timesStoodIn(t *testing.T, m *fleet.Member) int {
	t.Helper()
	log, err := m.Log()
	must(t, err)
	return strings.Count(log, "for the leader, which has not")
}
