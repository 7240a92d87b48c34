package agent

import (
	"context"
	"sync/atomic"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/member"
)

// migration is how far this cluster has moved from Submariner Lighthouse.
type migration struct {
	phase  atomic.Value // of type v1alpha1.MigrationPhase
	synced func() bool
}

// current returns the phase, empty if this cluster does not move.
func (m *migration) current() v1alpha1.MigrationPhase {
	phase, _ := m.phase.Load().(v1alpha1.MigrationPhase)
	return phase
}

// leavesStatus reports whether the status of ServiceExports is left to Lighthouse's agent. It is
// true also until the phase is known: what this agent does not write can be written later.
func (m *migration) leavesStatus() bool { return !m.synced() || m.current().LeavesObjects() }

// leavesDNS reports whether the command that moves the cluster decides which DNS server it uses.
// The agent then only keeps a block of Seamark up to date.
func (m *migration) leavesDNS() bool { return m.leavesStatus() }

// watchMigration follows the phase. A change concerns all services.
func (a *agent) watchMigration(ctx context.Context) (err error) {
	a.migration.synced, err = member.Watch(ctx, a.manager.GetCache(), &aboutv1beta1.ClusterProperty{},
		func(p *aboutv1beta1.ClusterProperty, deleted bool) {
			if p.Name != v1alpha1.PropertyMigration {
				return
			}
			phase := v1alpha1.MigrationPhase(p.Spec.Value)
			if deleted {
				phase = ""
			}
			if before := a.migration.current(); before != phase {
				a.migration.phase.Store(phase)
				a.Log.Info("the phase of the move from Submariner Lighthouse changed", "before", before, "now", phase)
				a.requestResync()
			}
		})
	return err
}
