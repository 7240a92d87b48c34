package agent

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// releaseCheckInterval is how often the agent checks whether it holds unused memory.
	releaseCheckInterval = 3 * time.Second
	// maxReleaseInterval is the time after which memory is released although the unused part has not
	// grown: fragments that could not be released last time may be free now.
	maxReleaseInterval = time.Minute
	// retainedReserve is how much unused memory is kept: the next few changes need it again.
	retainedReserve = 16 << 20
)

// releaseMemory returns memory to the operating system after a burst. A bulk export needs several
// times the memory of its results, and Go's runtime keeps most of that for minutes.
func (a *agent) releaseMemory(ctx context.Context) error {
	ticker := time.NewTicker(releaseCheckInterval)
	defer ticker.Stop()
	var last release
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !a.burst.Active() && last.isDue(unusedMemory(), time.Now()) {
			debug.FreeOSMemory()
			last = release{at: time.Now(), remaining: unusedMemory()}
		}
	}
}

// release is the last time memory was returned to the operating system.
type release struct {
	at time.Time
	// remaining was still unused afterwards: fragments between live objects.
	remaining uint64
}

// isDue reports whether memory should be released again, with unused bytes now.
func (r release) isDue(unused uint64, now time.Time) bool {
	return unused > r.remaining+retainedReserve || (unused > retainedReserve && now.Sub(r.at) > maxReleaseInterval)
}

// unusedMemory returns how much of the heap held no live objects after the last garbage collection.
func unusedMemory() uint64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	held := samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64()
	return held - min(held, samples[3].Value.Uint64())
}
