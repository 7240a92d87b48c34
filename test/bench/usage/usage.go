// Package usage reads what processes use, for benchmarks.
package usage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is the CPU time and memory that a process has used.
type Usage struct {
	CPU       time.Duration
	Resident  int64 // bytes
	Peak      int64 // the most resident bytes so far
	Anonymous int64 // resident bytes that no file backs: without the program itself
}

// Of reads the usage of a process from /proc. It is zero where that cannot be read.
func Of(pid int) Usage {
	var u Usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// The name of the program, in parentheses, can contain any character. utime and stime are the 12th
	// and 13th fields after it (proc(5)).
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime, stime, tick = 11, 12, time.Second / 100
	for _, i := range []int{utime, stime} {
		if n, err := strconv.ParseInt(fields[i], 10, 64); err == nil {
			u.CPU += time.Duration(n) * tick
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u
	}
	u.Resident, u.Peak, u.Anonymous = kibField(status, "VmRSS:"), kibField(status, "VmHWM:"), kibField(status, "RssAnon:")
	return u
}

// Stolen returns how much CPU time other virtual machines have taken from this one since it
// started, on all cores together. It is zero where that cannot be read.
func Stolen() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	const steal, tick = 8, time.Second / 100 // cpu user nice system idle iowait irq softirq steal (proc(5))
	fields := strings.Fields(line)
	if len(fields) <= steal {
		return 0
	}
	n, err := strconv.ParseInt(fields[steal], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}

// kibField reads a line such as "VmRSS:   1234 kB" and returns bytes.
func kibField(status []byte, name string) int64 {
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, name); found {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}
