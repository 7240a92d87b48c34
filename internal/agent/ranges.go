package agent

import (
	"context"
	"slices"
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
)

// rangesInterval is how soon imports are compared with ranges that changed. Nodes come and go in
// many clusters; each comparison takes the CPU time of a reconcile per service.
const rangesInterval = 10 * time.Second

// rangesChanged notes that addresses that were imported may have to be refused now, or the other
// way round.
func (a *agent) rangesChanged() { a.rangesDirty.Store(true) }

// followRanges reconciles all imports after ranges changed.
func (a *agent) followRanges(ctx context.Context) error {
	ticker := time.NewTicker(rangesInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if a.state.Connected() && a.rangesDirty.Swap(false) {
				a.importPush.Push(a.recordedServices(ctx)...)
			}
		}
	}
}

// setServiceRanges sets the ranges of this cluster's ClusterIPs. None means that they could not be
// read; the last known ones stay.
func (a *agent) setServiceRanges(cidrs []string) {
	ranges := objects.ParsePrefixes(cidrs)
	old := a.serviceRanges.Load()
	if old == nil || (len(ranges) > 0 && !slices.Equal(*old, ranges)) {
		a.serviceRanges.Store(&ranges)
		a.rangesChanged()
	}
}
