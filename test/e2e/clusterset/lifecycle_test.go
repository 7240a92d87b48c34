//go:build linux

package clusterset_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// underLoad sends requests from the client until change has returned, and counts their outcomes.
func (s *suite) underLoad(change func()) testenv.Tally {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Minute)
	defer cancel()
	type outcome struct {
		tally testenv.Tally
		err   error
	}
	done := make(chan outcome, 1)
	stop := make(chan struct{})
	go func() {
		var sum testenv.Tally
		sum.Clusters, sum.Errors = map[string]int{}, map[string]int{}
		for {
			part, err := s.Call(ctx, s.importer, "shop", "client", "http://"+testenv.WebName,
				"--duration", "3s", "--interval", "5ms", "--timeout", "5s")
			if err != nil {
				done <- outcome{sum, err}
				return
			}
			sum.Requests, sum.Failed = sum.Requests+part.Requests, sum.Failed+part.Failed
			sum.LongestGap = max(sum.LongestGap, part.LongestGap)
			for k, v := range part.Clusters {
				sum.Clusters[k] += v
			}
			for k, v := range part.Errors {
				sum.Errors[k] += v
			}
			select {
			case <-stop:
				done <- outcome{sum, nil}
				return
			default:
			}
		}
	}()
	change()
	close(stop)
	o := <-done
	s.must(o.err)
	return o.tally
}

// seamarkWorkloads returns the Deployments and DaemonSets that `seamark join` installed in a
// cluster.
func (s *suite) seamarkWorkloads(cluster string) []string {
	s.Helper()
	return strings.Fields(s.kubectl(cluster, "-n", "seamark-system", "get", "deployments,daemonsets", "-o", "name"))
}

// rollingRestart restarts every Seamark workload in every cluster under load: no request fails.
func rollingRestart(s *suite) {
	tally := s.underLoad(func() {
		for _, cluster := range s.Clusters() {
			workloads := s.seamarkWorkloads(cluster)
			if len(workloads) < 2 {
				s.Fatalf("%s has only the workloads %v", cluster, workloads)
			}
			for _, workload := range workloads {
				s.kubectl(cluster, "-n", "seamark-system", "rollout", "restart", workload)
				s.must(s.RolledOut(s.Context(), cluster, "seamark-system", workload))
			}
		}
	})
	if tally.Failed > 0 || tally.Requests < 100 {
		s.Errorf("%+v", tally)
	}
	s.Logf("%d requests, none failed, the longest time without an answer was %d ms", tally.Requests, tally.LongestGap)
}

// upgrade changes the release in one cluster under load: no request fails.
func upgrade(s *suite) {
	before := s.kubectl(s.importer, "-n", "seamark-system", "get", "deployment", "seamark-agent", "-o", "jsonpath={.metadata.generation}")
	tally := s.underLoad(func() {
		s.seamark("--context", s.importer, "join", "--broker-context", s.first, "--broker-server", s.brokerServer(),
			"--image", s.Image(), "--set", "logLevel=debug")
	})
	after := s.kubectl(s.importer, "-n", "seamark-system", "get", "deployment", "seamark-agent", "-o", "jsonpath={.metadata.generation}")
	if tally.Failed > 0 || before == after {
		s.Errorf("generation %s, then %s: %+v", before, after, tally)
	}
	releases := s.kubectl(s.importer, "-n", "seamark-system", "get", "secrets", "-l", "owner=helm", "-o", "name")
	if len(strings.Fields(releases)) < 2 {
		s.Errorf("Helm has the releases %v, want two", releases)
	}
}

// brokerServer returns the URL by which members reach the broker.
func (s *suite) brokerServer() string {
	s.Helper()
	config, err := s.Config(s.first)
	s.must(err)
	return config.Host
}

// leaveAndRejoin checks that the services of a member are withdrawn when it leaves and are back
// when it has joined again.
func leaveAndRejoin(s *suite) {
	s.seamark("--context", s.second, "leave")
	s.answeredBy("http://"+testenv.WebName, s.first)
	// The cluster id stays, because it belongs to the cluster. The membership must be gone.
	left := s.kubectl(s.second, "get", "serviceimports,clusterproperties", "-A", "-o", "name")
	if strings.Contains(left, "serviceimport") || strings.Contains(left, "/clusterset.k8s.io") {
		s.Errorf("left behind: %s", left)
	}
	s.seamark("--context", s.second, "join", "--broker-context", s.first, "--broker-server", s.brokerServer(),
		"--clusterid", s.second, "--image", s.Image())
	s.answeredBy("http://"+testenv.WebName, s.first, s.second)
	// join lets the kubelet read the new key at once.
	keys := s.kubectl(s.second, "-n", "seamark-system", "get", "pods", "-l", "app.kubernetes.io/component=beacon",
		"-o", `jsonpath={.items[*].metadata.annotations.seamark\.dev/beacon-key-version}`)
	if len(strings.Fields(keys)) == 0 {
		s.Error("join did not deliver the key of the beacons")
	}
	s.awaitReached(s.second)
}

// uninstall has all members leave and removes the broker: only what users created is left.
func uninstall(s *suite) {
	for _, cluster := range []string{s.importer, s.second, s.first} {
		s.seamark("--context", cluster, "leave", "--broker-context", s.first)
	}
	s.seamark("--context", s.first, "broker", "remove")
	for _, cluster := range s.Clusters() {
		s.eventually("nothing left in "+cluster, timeout, func() error {
			kinds := "namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
			var left []string
			for name := range strings.Lines(s.kubectl(cluster, "get", kinds, "-o", "name")) {
				if strings.Contains(name, "seamark") {
					left = append(left, strings.TrimSpace(name))
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("left: %v", left)
			}
			return nil
		})
		corefile := s.kubectl(cluster, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
		if strings.Contains(corefile, "clusterset.local") {
			s.Errorf("%s: the cluster's DNS still forwards clusterset.local:\n%s", cluster, corefile)
		}
	}
}
