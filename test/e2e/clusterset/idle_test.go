//go:build linux

package clusterset_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var idleTime = flag.Duration("idle.time", 20*time.Second, "for how long it is counted what members cost while nothing changes")

// ticksPerSecond is the unit of CPU times in /proc.
const ticksPerSecond = 100

// idleCost counts what the importer's agents and the beacons of all clusters cost while nothing
// changes. Agents write leases only, and read few.
func idleCost(s *suite) {
	s.deploy()
	s.awaitReached(s.first, s.second)
	var before, after series
	var beacons float64
	per := func(name string, labels ...string) float64 {
		return (after.sum(name, labels...) - before.sum(name, labels...)) / idleTime.Seconds()
	}
	for range 4 { // what other steps changed may still be under way
		beaconsBefore := s.cpuOf("seamark-beacon")
		before = s.agentMetrics(s.importer)
		time.Sleep(*idleTime)
		after, beacons = s.agentMetrics(s.importer), s.cpuOf("seamark-beacon")-beaconsBefore
		if per("seamark_api_writes_total") == 0 {
			break
		}
	}
	answers, cpu := per("seamark_probe_latency_seconds_count"), per("process_cpu_seconds_total")
	reads, renewals := per("rest_client_requests_total", `method="GET"`), per("rest_client_requests_total", `method="PUT"`)
	s.Logf("%s, each second: %.1f probes answered, %.2f requests that read and %.2f that write (leases), %.2f %% of a core for its agents, "+
		"%.2f %% for the beacons of all clusters", s.importer, answers, reads, renewals, 100*cpu, 100*beacons/idleTime.Seconds())
	if writes := per("seamark_api_writes_total"); writes > 0 {
		s.Errorf("the agent wrote %.2f objects a second", writes)
	}
	// Two clusters with up to three beacons each are probed about twice a second, in each family.
	paths := len(s.reachability(s.first)) + len(s.reachability(s.second))
	if answers == 0 || answers > float64(paths*3*3) {
		s.Errorf("%.1f probes a second were answered", answers)
	}
	// The leader renews its lease on the broker and reads one other. Both replicas renew or read the
	// lease of their election every two seconds, and one reads the member's lease.
	if reads > 2.5 || renewals > 1.5 {
		s.Errorf("%.2f requests a second read, %.2f wrote", reads, renewals)
	}
}

// series are samples of metrics, as text.
type series []string

// sum adds up the samples of a metric that have the labels.
func (m series) sum(name string, labels ...string) (total float64) {
next:
	for _, line := range m {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue next
			}
		}
		if value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			total += value
		}
	}
	return total
}

// agentMetrics returns the metrics of all agents of a cluster.
func (s *suite) agentMetrics(cluster string) (out series) {
	s.Helper()
	pods := s.kubectl(cluster, "-n", "seamark-system", "get", "pods", "-l", "app.kubernetes.io/component=agent", "-o", "name")
	for _, pod := range strings.Fields(pods) {
		path := fmt.Sprintf("/api/v1/namespaces/seamark-system/pods/%s:9441/proxy/metrics", strings.TrimPrefix(pod, "pod/"))
		for lines := bufio.NewScanner(strings.NewReader(s.kubectl(cluster, "get", "--raw", path))); lines.Scan(); {
			if line := lines.Text(); !strings.HasPrefix(line, "#") {
				out = append(out, line)
			}
		}
	}
	return out
}

// cpuOf returns the CPU time, in seconds, that all processes of a program have used.
func (s *suite) cpuOf(program string) (seconds float64) {
	s.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	s.must(err)
	found := 0
	for _, process := range processes {
		command, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err != nil {
			continue // it has ended
		}
		if name, _, _ := bytes.Cut(command, []byte{0}); filepath.Base(string(name)) != program {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(process, "stat"))
		if err != nil {
			continue
		}
		// The name of the program, in parentheses, may contain spaces; utime and stime are the 12th
		// and 13th field after it.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseFloat(field, 64)
			s.must(err)
			seconds += ticks / ticksPerSecond
		}
		found++
	}
	if found == 0 {
		s.Fatalf("no process of %s runs", program)
	}
	return seconds
}
