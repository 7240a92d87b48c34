//go:build linux

package migration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

func check(s *suite) {
	for _, cluster := range s.Clusters() {
		if text := s.migrate(cluster, "check"); !strings.HasPrefix(text, "Nothing blocks the move.") {
			s.Errorf("%s: check finds something in clusters that can move", cluster)
		}
	}
}

// startAndJoin starts the move in all clusters, joins them to Seamark's clusterset, and waits until
// Seamark has all endpoints that Lighthouse has.
func startAndJoin(s *suite) {
	server, err := s.Server(s.broker)
	s.must(err)
	_, err = s.Seamark(s.Context(), "--context", s.broker, "broker", "deploy", "--enable-clusterset-ip=false")
	s.must(err)
	for _, cluster := range s.Clusters() {
		s.migrate(cluster, "start")
		_, err = s.Seamark(s.Context(), "--context", cluster, "join", "--clusterid", cluster,
			"--broker-context", s.broker, "--broker-server", server, "--image", s.Image())
		s.must(err)
	}
	for _, cluster := range s.Clusters() {
		s.eventually("Seamark has all endpoints in "+cluster, func() error {
			status, err := s.statusOf(cluster)
			if err == nil && (status.Phase != "shadow" || status.Services != 2 || len(status.Missing) > 0) {
				err = fmt.Errorf("%+v", status)
			}
			return err
		})
	}
}

// moving is what status prints.
type moving struct {
	Phase    string   `json:"phase"`
	Services int      `json:"services"`
	Adopted  int      `json:"adopted"`
	Missing  []string `json:"missing"`
	DNS      string   `json:"dns"`
}

func (s *suite) statusOf(cluster string) (status moving, err error) {
	text, err := s.Seamark(s.Context(), "--context", cluster, "migrate", "lighthouse", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &status)
	}
	return status, err
}

// others returns the flag with the contexts of all other clusters.
func (s *suite) others(cluster string) string {
	return "--others=" + strings.Join(slices.DeleteFunc(s.Clusters(), func(c string) bool { return c == cluster }), ",")
}

// operatorRestarts restarts Submariner's operator in all clusters. At its start it replaces the
// CRDs of the MCS API by ones without v1beta1, which Seamark's agent restores.
func operatorRestarts(s *suite) {
	generation := func(cluster string) (n int) {
		_, err := fmt.Sscan(s.kubectl(cluster, "get", "crd", "serviceimports.multicluster.x-k8s.io", "-o", "jsonpath={.metadata.generation}"), &n)
		s.must(err)
		return n
	}
	before := map[string]int{}
	for _, cluster := range s.Clusters() {
		before[cluster] = generation(cluster)
		s.kubectl(cluster, "-n", operatorNamespace, "rollout", "restart", "deployment/submariner-operator")
	}
	for _, cluster := range s.Clusters() {
		s.eventually("the CRDs of "+cluster+" were replaced and restored", func() error {
			versions := s.kubectl(cluster, "get", "crd", "serviceimports.multicluster.x-k8s.io", "-o", "jsonpath={.spec.versions[*].name}")
			if now := generation(cluster); now < before[cluster]+2 || !strings.Contains(versions, "v1beta1") {
				return fmt.Errorf("generation %d, before %d, versions %s", now, before[cluster], versions)
			}
			return nil
		})
	}
}

// switchAll lets all clusters use Seamark's DNS, one after the other. Lighthouse answers with the
// address of one cluster for web, Seamark with those of both: so the answers show which DNS server
// the cluster uses.
func switchAll(s *suite) {
	for _, cluster := range s.Clusters() {
		s.migrate(cluster, "switch")
		s.resolvesTo(cluster, webName, 2)
	}
}

// resolvesTo waits until a name has so many addresses for the client in a cluster.
func (s *suite) resolvesTo(cluster, name string, addresses int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has %d addresses in %s", name, addresses, cluster), func() error {
		answers, err := s.Lookup(s.Context(), cluster, "shop", "client", name, "A")
		if err == nil && len(answers) != addresses {
			err = fmt.Errorf("it has %v", answers)
		}
		return err
	})
}

// backAndSwitchAgain takes one cluster back to Lighthouse's DNS, and switches it again.
func backAndSwitchAgain(s *suite) {
	cluster := s.Clusters()[1]
	s.migrate(cluster, "back", s.others(cluster))
	s.resolvesTo(cluster, webName, 1)
	s.migrate(cluster, "switch")
}

// finish ends Lighthouse in all clusters at once: in each, Submariner's operator waits two minutes
// for its uninstall job, which admission policies keep from running.
func finish(s *suite) {
	var running sync.WaitGroup
	errs := make([]error, len(s.Clusters()))
	for i, cluster := range s.Clusters() {
		running.Go(func() { _, errs[i] = s.tryMigrate(cluster, "finish", s.others(cluster)) })
	}
	running.Wait()
	s.must(errors.Join(errs...))
	for _, cluster := range s.Clusters() {
		status, err := s.statusOf(cluster)
		s.must(err)
		if status.Phase != "finished" || status.Adopted != 2 || status.DNS != "Seamark" {
			s.Errorf("%s: %+v", cluster, status)
		}
		s.eventually("Lighthouse has ended in "+cluster, func() error {
			left := s.kubectl(cluster, "-n", operatorNamespace, "get", "deployments,services", "-o", "name")
			if strings.Contains(left, "lighthouse") {
				return fmt.Errorf("left: %v", strings.Fields(left))
			}
			return nil
		})
	}
}

// cleanUp deletes what Lighthouse left in the clusters and on its broker.
func cleanUp(s *suite) {
	for _, cluster := range s.Clusters() {
		s.migrate(cluster, "finish", s.others(cluster))
		left := s.kubectl(cluster, "get", "endpointslices", "-n", "shop", "-o", "name",
			"-l", "endpointslice.kubernetes.io/managed-by=lighthouse-agent.submariner.io") +
			s.kubectl(cluster, "get", "serviceimports.multicluster.x-k8s.io", "-n", operatorNamespace, "-o", "name")
		if left != "" {
			s.Errorf("%s: Lighthouse left %v", cluster, strings.Fields(left))
		}
	}
	s.kubectl(s.broker, "-n", brokerNamespace, "delete", "serviceimports.multicluster.x-k8s.io,endpointslices", "--all")
}

// seamarkServes adds a pod to a service in one cluster, and waits until all clusters have it.
func seamarkServes(s *suite) {
	second := s.Clusters()[1]
	s.kubectl(second, "-n", "shop", "scale", "statefulset/db", "--replicas=2")
	for _, cluster := range s.Clusters() {
		s.resolvesTo(cluster, dbName, 3)
	}
}
