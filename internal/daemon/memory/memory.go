// Package memory makes a daemon use the memory that its container allows, and not more.
package memory

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitFiles are where a container finds its memory limit: with version 2 of the kernel's control
// groups, and with version 1.
var limitFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// RespectLimit makes the garbage collector work harder before the container's limit is reached,
// unless $GOMEMLIMIT is set. Without it the heap may grow to a multiple of what is in use, and the
// kernel kills the process. A fifth of the limit is left for what the kernel accounts to the
// container: socket buffers and, for the proxy, messages to the kernel and the table's elements.
func RespectLimit() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	for _, path := range limitFiles {
		if text, err := os.ReadFile(path); err == nil {
			debug.SetMemoryLimit(heapLimit(string(text)))
			return
		}
	}
}

// heapLimit returns how much of a container's limit the heap may use.
func heapLimit(text string) int64 {
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || limit <= 0 {
		return math.MaxInt64 // "max": no limit
	}
	return limit / 5 * 4
}
