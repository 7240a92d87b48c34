package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// usage is the CPU time and memory that a process has used.
type usage struct {
	cpu       time.Duration
	resident  int64 // bytes
	peak      int64 // the most resident bytes so far
	anonymous int64 // resident bytes that no file backs: without the program itself
}

// usage returns the usage of the agents, by member.
func (e *environment) usage() map[string]usage {
	out := map[string]usage{}
	for _, m := range e.members() {
		pids, _ := m.agents() // the usage of none is zero
		for _, pid := range pids {
			// Of several replicas the leader uses the most CPU time.
			if u := usageOf(pid); u.cpu >= out[m.name].cpu {
				out[m.name] = u
			}
		}
	}
	return out
}

// usageOf reads the usage of a process from /proc. It is zero where that cannot be read.
func usageOf(pid int) usage {
	var u usage
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
			u.cpu += time.Duration(n) * tick
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u
	}
	u.resident, u.peak, u.anonymous = kibField(status, "VmRSS:"), kibField(status, "VmHWM:"), kibField(status, "RssAnon:")
	return u
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

// cpuTimes returns the CPU times of the benchmark and of all its child processes, by role.
func cpuTimes() map[string]time.Duration {
	out := map[string]time.Duration{"benchmark": usageOf(os.Getpid()).cpu}
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		pids, _ := os.ReadFile(task)
		for _, text := range strings.Fields(string(pids)) {
			pid, _ := strconv.Atoi(text)
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			out[role(string(cmdline))] += usageOf(pid).cpu
		}
	}
	return out
}

// role returns what a process is, from its command line: a component of a control plane, which its
// flags name, or an agent.
func role(cmdline string) string {
	plane := map[string]string{"bench0": "broker", "bench1": "exporter", "bench2": "importer"}
	for dir, name := range plane {
		for _, component := range []string{"etcd", "kube-apiserver"} {
			if strings.Contains(cmdline, "/"+dir+"/") && strings.Contains(cmdline, "\x00"+component+"\x00") {
				return name + "'s " + component
			}
		}
	}
	return "agents"
}

// cpuSpent describes the CPU time of each role between two results of cpuTimes.
func cpuSpent(before, after map[string]time.Duration) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if after[name] == before[name] {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %.1f s", name, (after[name]-before[name]).Seconds()))
	}
	return "CPU: " + strings.Join(parts, ", ")
}
