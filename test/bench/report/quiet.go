package report

import (
	"context"
	"runtime"
	"time"

	"github.com/seamark-dev/seamark/test/bench/usage"
)

const (
	// quietShare is which share of the CPU time other machines may take while this one is quiet.
	quietShare = 0.02
	// quietFor is how long it must be so, and quietWait how long AwaitQuiet waits for it at most.
	quietFor  = 5 * time.Second
	quietWait = 2 * time.Minute
)

// Theft measures which share of the CPU time other virtual machines take.
type Theft struct {
	from  time.Time
	taken time.Duration
}

// NewTheft begins to measure.
func NewTheft() Theft { return Theft{time.Now(), usage.Stolen()} }

// Share returns the share since NewTheft, from 0 to 1.
func (t Theft) Share() float64 {
	all := time.Since(t.from) * time.Duration(runtime.NumCPU())
	if all <= 0 {
		return 0
	}
	return float64(usage.Stolen()-t.taken) / float64(all)
}

// AwaitQuiet waits until other virtual machines leave this one its cores. What is measured while
// they do not says little. If they do not for two minutes, it reports that and returns.
func (r *Report) AwaitQuiet(ctx context.Context) error {
	for end := time.Now().Add(quietWait); ; {
		theft := NewTheft()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(quietFor):
		}
		share := theft.Share()
		if share < quietShare {
			return nil
		}
		if time.Now().After(end) {
			r.Say("other machines still take %.0f %% of the CPU time: what follows is measured nevertheless", 100*share)
			return nil
		}
		r.Say("other machines take %.0f %% of the CPU time: waiting, %s at most", 100*share, time.Until(end).Round(time.Second))
	}
}
