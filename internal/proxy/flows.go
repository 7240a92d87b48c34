package proxy

import (
	"net/netip"
	"time"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// Flows is the kernel's table of tracked connections.
type Flows interface {
	// Delete deletes the connections for which stale is true, and returns how many.
	Delete(stale func(ruleset.Flow) bool) (int, error)
}

const (
	// flowsPause is how long a pause after listing the tracked connections is, as a multiple of the
	// time that it took. So listing them takes at most a twentieth of one core.
	flowsPause = 19
	// minFlowsRetry and maxFlowsRetry bound the delay after a failure, which doubles each time.
	minFlowsRetry = time.Second
	maxFlowsRetry = time.Minute
)

// flowCleaner deletes tracked connections that the rules do not reach. The rules are right without
// it, so its failures delay nothing else.
type flowCleaner struct {
	flows    Flows
	stale    ruleset.StaleFlows
	notUntil time.Time
	failures int
}

// clean deletes what is stale, unless the last time was a moment ago. wait is when to call it
// again; zero if nothing is left to do.
func (c *flowCleaner) clean(serving func(ruleset.Frontend) []netip.AddrPort) (deleted int, wait time.Duration, err error) {
	if c.stale.Empty() {
		return 0, 0, nil
	}
	started := time.Now()
	if wait := c.notUntil.Sub(started); wait > 0 {
		return 0, wait, nil
	}
	deleted, err = c.flows.Delete(c.stale.Matcher(serving))
	if err != nil {
		c.failures++
	} else {
		c.failures, c.stale = 0, ruleset.StaleFlows{}
	}
	pause := flowsDelay(time.Since(started), c.failures)
	c.notUntil = time.Now().Add(pause)
	if err != nil {
		wait = pause
	}
	return deleted, wait, err
}

// flowsDelay returns how long to wait after a listing that took some time, and after so many
// failures in a row.
func flowsDelay(took time.Duration, failures int) time.Duration {
	pause := flowsPause * took
	if failures > 0 {
		retry := maxFlowsRetry
		if shift := failures - 1; shift < 6 {
			retry = min(minFlowsRetry<<shift, maxFlowsRetry)
		}
		pause = max(pause, retry)
	}
	return pause
}
