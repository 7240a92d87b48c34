//go:build linux

package clusterset_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// The defaults make a short run on a slow machine. docs/failure-behaviour.md has a long one with
// the times that users can expect.
var (
	runs     = flag.Int("failover.runs", 2, "how often a cluster is cut off")
	within   = flag.Duration("failover.within", 10*time.Second, "how soon requests must succeed again; leases need 20 s and more")
	outage   = flag.Duration("failover.outage", 45*time.Second, "how long a control plane is away")
	services = flag.Int("failover.services", 20, "how many services go at once")
	loadTime = flag.Duration("failover.load", 7*time.Second, "how long requests are sent during a cut; within 45 s clients use ports again")
	all      = flag.Bool("failover.all", false, "check every fault with both data planes")
)

const (
	// warmUp is for how long requests are sent before a fault.
	warmUp = 2 * time.Second
	// returnTime is how long requests are sent while a cluster returns.
	returnTime = 19 * time.Second

	webURL = "http://" + testenv.WebName
)

// startLoad begins to send requests at a fixed rate from the client. wait waits for their outcome.
func (s *suite) startLoad(target string, d time.Duration, args ...string) (wait func() testenv.Tally) {
	result := s.CallInBackground(s.Context(), s.importer, "shop", "client", target, d, args...)
	time.Sleep(warmUp) // requests must have succeeded before the fault
	return func() testenv.Tally {
		s.Helper()
		tally, err := result()
		s.must(err)
		return tally
	}
}

// reachability returns how the importer reaches a cluster, in all families.
func (s *suite) reachability(cluster string) []objects.Reachability {
	s.Helper()
	var report status.Report
	s.must(json.Unmarshal([]byte(s.seamark("--context", s.importer, "status", "-o", "json")), &report))
	var out []objects.Reachability
	for _, path := range report.Reachability {
		if path.From == s.importer && path.Cluster == cluster {
			out = append(out, path.Reachability)
		}
	}
	return out
}

// awaitReached waits until the importer reaches clusters, and uses them: the list of unreachable
// ones is empty.
func (s *suite) awaitReached(clusters ...string) {
	s.Helper()
	for _, cluster := range clusters {
		s.eventually(s.importer+" reaches "+cluster, 3*time.Minute, func() error {
			paths := s.reachability(cluster)
			for _, path := range paths {
				if path.State != objects.Reachable || path.Reason != objects.ReachBeaconsAnswer {
					return fmt.Errorf("%+v", path)
				}
			}
			if len(paths) == 0 || s.unreachable() != "" {
				return fmt.Errorf("paths %v, unreachable %q", paths, s.unreachable())
			}
			return nil
		})
	}
}

// unreachable returns the importer's list of unreachable clusters.
func (s *suite) unreachable() string {
	s.Helper()
	return s.kubectl(s.importer, "get", "clusterproperty", v1alpha1.PropertyUnreachableClusters, "--ignore-not-found", "-o", "jsonpath={.spec.value}")
}

// slicesOf returns the slices of a service that the importer has of a cluster, with their versions.
func (s *suite) slicesOf(service, cluster string) []string {
	s.Helper()
	return strings.Fields(s.kubectl(s.importer, "-n", "shop", "get", "endpointslices",
		"-l", "multicluster.kubernetes.io/service-name="+service+",multicluster.kubernetes.io/source-cluster="+cluster,
		"-o", `jsonpath={range .items[*]}{.metadata.name}@{.metadata.resourceVersion}{"\n"}{end}`))
}

// awaitSlices waits until the importer has slices of a cluster, or none.
func (s *suite) awaitSlices(service, cluster string, want bool) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has slices of %s in %s: %t", service, cluster, s.importer, want), timeout, func() error {
		if have := s.slicesOf(service, cluster); (len(have) > 0) != want {
			return fmt.Errorf("it has %v", have)
		}
		return nil
	})
}

func (s *suite) heal() {
	s.Helper()
	_, err := s.Heal(s.Context(), fault.Selection{})
	s.must(err)
}

// restartAgent replaces the agents of the importer. The next ones damp flapping links anew. It
// waits until the earlier ones are gone: while they end, they would answer what clusters they
// reached.
func (s *suite) restartAgent() {
	s.Helper()
	pods := func() []string {
		return strings.Fields(s.kubectl(s.importer, "-n", "seamark-system", "get", "pods", "-l", "app.kubernetes.io/component=agent",
			"-o", "jsonpath={.items[*].metadata.name}"))
	}
	earlier := pods()
	s.kubectl(s.importer, "-n", "seamark-system", "rollout", "restart", "deployment/seamark-agent")
	s.must(s.RolledOut(s.Context(), s.importer, "seamark-system", "deployment/seamark-agent"))
	s.eventually("the earlier agents are gone", timeout, func() error {
		left := slices.DeleteFunc(pods(), func(pod string) bool { return !slices.Contains(earlier, pod) })
		if len(left) > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
}

// failover cuts off a cluster that serves, again and again: both ways, and one way. New connections
// go to the other one soon. After the network is healed it serves again, without a gap.
func failover(s *suite) {
	paths := []fault.Path{{From: s.second}, {From: s.second, To: s.importer, OneWay: true}, {From: s.importer, To: s.second, OneWay: true}}
	var times []time.Duration
	for run := range *runs {
		s.awaitReached(s.first, s.second)
		path := paths[run%len(paths)]
		if run == 1 && s.dataPlane == v1alpha1.DataPlaneNFTables {
			path = paths[2] // so that a short run has all three
		}
		outcome := s.startLoad(webURL, warmUp+*loadTime)
		cut := time.Now()
		s.must(s.Cut(s.Context(), path))
		tally := outcome()
		took, failed := tally.Recovery(cut), tally.Failed
		late := slices.DeleteFunc(tally.Failures(cut), func(at time.Duration) bool { return at <= took })
		s.Logf("run %d, %+v: 99 %% of the requests succeed %s after the cut began; %d of %d failed, %d of them later: %v; "+
			"from 2 s on %.2f %% succeed", run, path, took.Round(10*time.Millisecond), failed, tally.Requests, len(late), late,
			100*tally.Succeeding(cut.Add(2*time.Second)))
		if took > *within || failed == 0 {
			s.Errorf("run %d: %s: %v", run, took, tally.Errors)
		}
		times = append(times, took)
		if !strings.Contains(s.unreachable(), s.second+"/") {
			s.Errorf("the list of unreachable clusters is %q", s.unreachable())
		}
		s.awaitSlices("web", s.second, false)
		s.answeredBy(webURL, s.first)
		began := time.Now()
		outcome = s.startLoad(webURL, returnTime)
		healing := time.Now()
		s.heal()
		tally = outcome()
		s.Logf("run %d: %d of %d requests failed while the network healed: %v", run, tally.Failed, tally.Requests, tally.Failures(healing))
		// A single packet that is lost costs a request. If several fail in a row, they use ports of
		// attempts to connect during the cut, which kube-proxy leaves to the lost endpoint.
		disturbed := tally.Recovery(began) > 0
		if s.dataPlane == v1alpha1.DataPlaneService {
			disturbed = 10*tally.Failed > tally.Requests
		}
		if disturbed || tally.Clusters[s.second] == 0 {
			s.Errorf("run %d, after the network healed: %v, %v", run, tally.Clusters, tally.Errors)
		}
		s.answeredBy(webURL, s.first, s.second)
		if run+1 < *runs {
			s.restartAgent()
		}
	}
	slices.Sort(times)
	s.Logf("%s: recovery within %s (median %s, all %s)", s.dataPlane, times[len(times)-1], times[len(times)/2], times)
}

// failoverOfMany cuts off a cluster with many services that the other one has too.
func failoverOfMany(s *suite) {
	var manifest strings.Builder
	for i := range *services {
		fmt.Fprintf(&manifest, `{apiVersion: v1, kind: Service, metadata: {name: many-%d, namespace: shop}, spec: {selector: {app: web}, ports: [`+
			`{name: http, port: 80, targetPort: 8080}]}}
---
{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: many-%d, namespace: shop}}
---
`, i, i)
	}
	for _, cluster := range []string{s.first, s.second} {
		s.must(s.Apply(s.Context(), cluster, manifest.String()))
	}
	target, each := "http://many-*."+strings.TrimPrefix(testenv.WebName, "web."), []string{"--services", strconv.Itoa(*services)}
	s.eventually("all services are answered by both clusters", 10*time.Minute, func() error {
		tally := s.call(target, append(each, "--count", strconv.Itoa(4**services), "--timeout", "1s")...)
		if tally.Failed > 0 || tally.Clusters[s.first] == 0 || tally.Clusters[s.second] == 0 {
			return fmt.Errorf("%+v", tally)
		}
		return nil
	})
	s.awaitSlices("many-"+strconv.Itoa(*services-1), s.second, true)
	s.restartAgent()
	s.renewClient()
	s.awaitReached(s.first, s.second)
	before, outcome := s.sliceWrites(), s.startLoad(target, warmUp+*loadTime, each...)
	cut := time.Now()
	s.must(s.Cut(s.Context(), fault.Path{From: s.second}))
	tally := outcome()
	took, failed := tally.Recovery(cut), tally.Failed
	s.Logf("%s, %d services: 99 %% of the requests succeed %s after the cut began; %d of %d failed; %d writes of EndpointSlices in %s",
		s.dataPlane, *services, took.Round(10*time.Millisecond), failed, tally.Requests, s.sliceWrites()-before, s.importer)
	s.Logf("of those that begin in each second after the cut, so many failed: %v", bySecond(tally.Failures(cut)))
	if took > *within {
		s.Errorf("%s: %v", took, tally.Errors)
	}
	s.heal()
	s.awaitReached(s.second)
	if *floor {
		s.floorOfMany(target, each)
	}
	for _, cluster := range []string{s.first, s.second} {
		s.must(s.deleteMany(cluster))
	}
	s.awaitSlices("many-0", s.second, false)
}

// deleteMany deletes what failoverOfMany created.
func (s *suite) deleteMany(cluster string) error {
	var names []string
	for i := range *services {
		names = append(names, "service/many-"+strconv.Itoa(i), "serviceexport/many-"+strconv.Itoa(i))
	}
	_, err := s.Kubectl(s.Context(), cluster, append([]string{"-n", "shop", "delete", "--wait=false"}, names...)...)
	return err
}

// sliceWrites returns how many writes of EndpointSlices the importer's API server has answered.
func (s *suite) sliceWrites() int {
	s.Helper()
	sum := 0.0
	for line := range strings.Lines(s.kubectl(s.importer, "get", "--raw", "/metrics")) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="endpointslices"`) {
			continue
		}
		for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION"} {
			if strings.Contains(line, `verb="`+verb+`"`) {
				count, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
				s.must(err)
				sum += count
			}
		}
	}
	return int(sum)
}

// flowsStay cuts off a cluster while requests are sent over open connections to the other one.
func flowsStay(s *suite) {
	s.awaitReached(s.first, s.second)
	type flow struct {
		tally testenv.Tally
		err   error
	}
	for _, target := range []string{webURL, "udp://" + testenv.WebName + ":9090"} {
		flows := make(chan flow)
		const connections = 8 // half of them to each cluster, more or less
		for range connections {
			go func() {
				tally, err := s.Call(s.Context(), s.importer, "shop", "client", target,
					"--one-connection", "--duration", "12s", "--interval", "20ms", "--timeout", "500ms", "--list")
				flows <- flow{tally, err}
			}()
		}
		time.Sleep(2 * warmUp)
		cut := time.Now().UnixMilli()
		s.must(s.Cut(s.Context(), fault.Path{From: s.second}))
		untouched := 0
		for range connections {
			f := <-flows
			s.must(f.err)
			if answers := f.tally.Answers; len(answers) == 0 || answers[0] != s.first || f.tally.Starts[0] >= cut {
				continue // what a flow to the cluster that is gone does is up to its client; one that began later proves nothing
			}
			untouched++
			if f.tally.Failed > 0 || f.tally.Connections != 1 {
				s.Errorf("a flow to %s was disturbed: %+v", s.first, f.tally)
			}
		}
		if untouched == 0 {
			s.Errorf("%s: none of %d flows went to %s", target, connections, s.first)
		}
		s.heal()
		s.restartAgent()
		s.awaitReached(s.first, s.second)
	}
}

// agentRestartsDuringACut replaces the agent while a cluster is cut off: its endpoints do not come
// back.
func agentRestartsDuringACut(s *suite) {
	s.awaitReached(s.first, s.second)
	s.must(s.Cut(s.Context(), fault.Path{From: s.second}))
	s.awaitSlices("web", s.second, false)
	s.answeredBy(webURL, s.first) // kube-proxy may act a second later
	s.renewClient()
	list := s.unreachable()
	tally := s.underLoad(func() {
		s.restartAgent()
		s.eventually("the new agent probes", timeout, func() error {
			paths := s.reachability(s.second)
			if len(paths) == 0 {
				return errors.New("no paths")
			}
			for _, path := range paths {
				if path.State != objects.Unreachable {
					return fmt.Errorf("%+v", path)
				}
			}
			return nil
		})
	})
	if tally.Failed > 0 || tally.Clusters[s.second] > 0 {
		s.Errorf("%+v", tally)
	}
	if have := s.slicesOf("web", s.second); len(have) > 0 {
		s.Errorf("slices of %s came back: %v", s.second, have)
	}
	if now := s.unreachable(); now != list {
		s.Errorf("the list of unreachable clusters was %q, and is %q", list, now)
	}
	s.heal()
	s.awaitReached(s.second)
	s.awaitSlices("web", s.second, true)
}
