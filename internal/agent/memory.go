package agent

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryCheckInterval is how often the agent looks at its memory.
	memoryCheckInterval = 3 * time.Second
	// maxReleaseInterval is the time after which memory is released although the unused part has not
	// grown: fragments that could not be released last time may be free now.
	maxReleaseInterval = time.Minute
	// retainedReserve is how much unused memory is kept while objects change: the next few changes
	// need it again.
	retainedReserve = 16 << 20
	// calmAllocations is what an agent allocates between two checks while nothing changes, at most.
	calmAllocations = 1 << 20
	// calmReserve is how much may have been allocated since the last release before memory is
	// released again in calm times. It is what an idle agent allocates in minutes.
	calmReserve = 8 << 20

	// An agent with a small heap collects garbage when that is half as large as what is in use.
	// From 48 MiB in use on it is garbageLimit: half of the caches of thousands of services would be
	// more than the caches of most clusters. Spans that garbage leaves behind half empty are never
	// filled again after a burst.
	maxGCPercent = 50
	minGCPercent = 20
	garbageLimit = 24 << 20
)

// manageMemory returns memory to the operating system after a burst, and bounds the garbage of a
// large heap. A bulk export needs several times the memory of its results, and Go's runtime keeps
// most of that for minutes.
func (a *agent) manageMemory(ctx context.Context) error {
	ticker := time.NewTicker(memoryCheckInterval)
	defer ticker.Stop()
	chosen := os.Getenv("GOGC") != "" // by the user
	var last release
	var percent int
	for before := readHeap(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := readHeap()
		if p := gcPercent(now.live); p != percent && !chosen {
			percent = p
			debug.SetGCPercent(p)
		}
		if !a.burst.Active() && last.isDue(now, now.allocated-before.allocated, time.Now()) {
			debug.FreeOSMemory()
			now = readHeap()
			last = release{at: time.Now(), remaining: now.unused(), allocated: now.allocated}
		}
		before = now
	}
}

// gcPercent returns the percentage of garbage at which it is collected, with live bytes in use.
// Steps keep it from changing with each collection.
func gcPercent(live uint64) int {
	const step = 5
	percent := garbageLimit * 100 / max(live, 1) / step * step
	return int(min(max(percent, minGCPercent), maxGCPercent))
}

// release is the last time memory was returned to the operating system.
type release struct {
	at time.Time
	// remaining was still unused afterwards: fragments between live objects.
	remaining uint64
	// allocated is how much the process had allocated until then.
	allocated uint64
}

// isDue reports whether memory should be released again, if so much was allocated since the last
// check. What the runtime knows to be unused is from its last collection, which may have been long
// ago: so in calm times, what was allocated since the last release counts as garbage.
func (r release) isDue(h heap, recently uint64, now time.Time) bool {
	if recently <= calmAllocations && h.allocated-r.allocated > calmReserve {
		return true
	}
	unused := h.unused()
	return unused > r.remaining+retainedReserve || (unused > retainedReserve && now.Sub(r.at) > maxReleaseInterval)
}

// heap is what the runtime says of the heap, in bytes.
type heap struct {
	held      uint64 // taken from the operating system and not returned
	live      uint64 // in use at the last collection
	allocated uint64 // since the process started
}

// unused returns how much of the heap held no live objects after the last collection.
func (h heap) unused() uint64 { return h.held - min(h.held, h.live) }

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return heap{
		held:      samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64(),
		live:      samples[3].Value.Uint64(),
		allocated: samples[4].Value.Uint64(),
	}
}
