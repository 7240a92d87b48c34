package fleet

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	// observations is how often Consistently observes at most.
	observations = 5
	pollLeases   = 100 * time.Millisecond
)

// Consistently is harness.Consistently for what holds while the members renew their leases in time.
// On a busy machine an agent may renew its lease too late, and other members rightly take it for
// stale. Such an observation shows nothing and is repeated when all is as it should be.
func (f *Fleet) Consistently(t testing.TB, what string, d time.Duration, check func() error) {
	t.Helper()
	for n := 1; ; n++ {
		late, failed := f.observe(d, check)
		if failed == nil {
			return
		}
		if late == "" || n == observations {
			t.Fatalf("%s: no longer the case: %v; observed %d times, leases renewed too late: %q", what, failed, n, late)
		}
		t.Logf("%s: observed again, the machine was too busy: %s: %v", what, late, failed)
		harness.Eventually(t, what, check)
	}
}

// observe calls check for the time d. It returns which member renewed its lease too late until
// then, and the first error of check.
func (f *Fleet) observe(d time.Duration, check func() error) (late string, failed error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lateness := make(chan string, 1)
	go func() { lateness <- f.lateRenewal(ctx) }()
	for started := time.Now(); failed == nil && time.Since(started) < d; time.Sleep(20 * time.Millisecond) {
		failed = check()
	}
	cancel()
	return <-lateness, failed
}

// lateRenewal watches the leases of all members that run until ctx is done. It says which of them
// was not renewed for so long that other members may take the member for stale.
func (f *Fleet) lateRenewal(ctx context.Context) (late string) {
	versions, seen := map[string]string{}, map[string]time.Time{}
	ticker := time.NewTicker(pollLeases)
	defer ticker.Stop()
	for {
		for _, m := range f.Members {
			if !m.Running() {
				continue
			}
			lease := &coordinationv1.Lease{}
			key := client.ObjectKey{Namespace: objects.DefaultNamespace, Name: m.ID}
			// A request that fails is one more sign of a busy machine: the lease counts as not renewed.
			_ = f.Admin.Get(ctx, key, lease)
			now := time.Now()
			last, ok := seen[m.ID]
			if !ok || lease.ResourceVersion != "" && lease.ResourceVersion != versions[m.ID] {
				versions[m.ID], seen[m.ID] = lease.ResourceVersion, now
				if renewed := lease.Spec.RenewTime; !ok && renewed != nil {
					seen[m.ID] = renewed.Time // before the observation began
				}
			} else if gap := now.Sub(last); gap > m.Agent.LeaseDuration-2*m.Agent.RenewEvery {
				late = fmt.Sprintf("%s did not renew its lease for %s", m.ID, gap.Round(time.Millisecond))
			}
		}
		select {
		case <-ctx.Done():
			return late
		case <-ticker.C:
		}
	}
}

// Running reports whether the member's agent runs.
func (m *Member) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop != nil || m.process != nil
}
