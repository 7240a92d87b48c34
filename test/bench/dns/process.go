package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is the CPU and memory of a process.
type usage struct {
	cpu           time.Duration
	anonymousOnly int64 // resident bytes that no file backs: without the program itself
}

// usageOf reads a process's CPU and memory from /proc; all zero if they cannot be read. The CPU
// time of all threads comes from schedstat, in nanoseconds: the ticks of stat are too coarse for a
// few seconds.
func usageOf(pid int) usage {
	var u usage
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		if err != nil {
			continue // the thread has ended
		}
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			n, _ := strconv.ParseInt(fields[0], 10, 64)
			u.cpu += time.Duration(n)
		}
	}
	u.anonymousOnly = statusField(pid, "RssAnon:")
	return u
}

// statusField returns an amount of memory in the status of a process, zero if it cannot be read.
func statusField(pid int, name string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}
