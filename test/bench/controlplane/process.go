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

	"github.com/seamark-dev/seamark/test/bench/usage"
)

// usage returns the usage of the agents, by member.
func (e *environment) usage() map[string]usage.Usage {
	out := map[string]usage.Usage{}
	for _, m := range e.members() {
		pids, _ := m.agents() // the usage of none is zero
		for _, pid := range pids {
			// Of several replicas the leader uses the most CPU time.
			if u := usage.Of(pid); u.CPU >= out[m.name].CPU {
				out[m.name] = u
			}
		}
	}
	return out
}

// cpuTimes returns the CPU times of the benchmark and of all its child processes, by role.
func cpuTimes() map[string]time.Duration {
	out := map[string]time.Duration{"benchmark": usage.Of(os.Getpid()).CPU}
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		pids, _ := os.ReadFile(task)
		for _, text := range strings.Fields(string(pids)) {
			pid, _ := strconv.Atoi(text)
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			out[role(string(cmdline))] += usage.Of(pid).CPU
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
