package proxy

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroupLimit is where a container finds its memory limit.
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// respectMemoryLimit makes the garbage collector work harder before the container's limit is
// reached, unless $GOMEMLIMIT is set. A fifth of the limit is left for what the kernel accounts to
// the container: the elements of the table and messages to the kernel.
func respectMemoryLimit() {
	text, err := os.ReadFile(cgroupLimit)
	if err == nil && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapLimit(string(text)))
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
