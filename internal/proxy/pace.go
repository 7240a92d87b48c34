package proxy

import "time"

// schedule says when the next sync may begin.
type schedule struct {
	// pause is how long no sync begins, whatever changes.
	pause time.Duration
	// due is after how long one is needed although nothing changed; zero if none is.
	due time.Duration
}

// pacer decides when the next sync may begin.
type pacer struct{ retry time.Duration }

// after returns the schedule after a sync that took some time and failed or not. wait is after how
// long a successful one needs another.
func (p *pacer) after(took, wait time.Duration, err error) schedule {
	if err != nil {
		p.retry = min(max(2*p.retry, minRetryDelay), maxRetryDelay)
		return schedule{pause: p.retry, due: p.retry}
	}
	p.retry = 0
	return schedule{pause: max(minSyncPause, took), due: wait}
}
