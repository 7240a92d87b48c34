package agent

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// tidyEvery is how often an agent looks whether it holds memory it does not use.
	releaseCheckInterval = 3 * time.Second
	// tidyAnyway is when memory is given back although little may be gained: what was scattered at the last time may be free now.
	maxReleaseInterval = time.Minute
	// spare is what may be held in reserve: as much is used again when the next few services change.
	retainedReserve = 16 << 20
)

// tidy gives memory back after a rush. A bulk export needs several times what its results need, and Go's runtime keeps most of that for minutes.
func (a *agent) releaseMemory(ctx context.Context) error {
	ticker := time.NewTicker(releaseCheckInterval)
	defer ticker.Stop()
	var scattered uint64 // between what was alive last time, and so not to be had
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if now := unusedMemory(); !a.burst.Active() && (now > scattered+retainedReserve || (now > retainedReserve && time.Since(last) > maxReleaseInterval)) {
			debug.FreeOSMemory()
			scattered, last = unusedMemory(), time.Now()
		}
	}
}

// unused is how much of this process's memory holds nothing that was alive when garbage was last collected.
func unusedMemory() uint64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	held := samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64()
	return held - min(held, samples[3].Value.Uint64())
}
