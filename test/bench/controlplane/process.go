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

// used is what a process has used of the machine.
type used struct {
	cpu           time.Duration
	resident      int64 // bytes
	largest       int64 // bytes, ever
	anonymousOnly int64 // resident bytes that no file backs: without the program itself
}

// usage is what the agents have used, by member.
func (b *bed) usage() map[string]used {
	out := map[string]used{}
	for _, m := range b.members() {
		out[m.name] = usageOf(m.member.PID())
	}
	return out
}

// usageOf reads a process's use of the machine from /proc; all zero where that cannot be read.
func usageOf(pid int) used {
	var u used
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// The name of the program, in parentheses, may hold anything; utime and stime are the 12th and 13th after it (proc(5)).
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
	u.resident, u.largest, u.anonymousOnly = kib(status, "VmRSS:"), kib(status, "VmHWM:"), kib(status, "RssAnon:")
	return u
}

// kib reads a line such as "VmRSS:   1234 kB" and returns bytes.
func kib(status []byte, name string) int64 {
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, name); found {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// children are the CPU times of all processes of the benchmark, itself included, by what they are.
func children() map[string]time.Duration {
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

// role says which process a command line is of: a component of a control plane, whose folder its flags name, or an agent.
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

// spent tells who computed how long.
func spent(before, after map[string]time.Duration) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		parts = append(parts, fmt.Sprintf("%s %.1f s", name, (after[name]-before[name]).Seconds()))
	}
	return "CPU: " + strings.Join(parts, ", ")
}
