//go:build linux

package clusterset_test

import (
	"flag"
	"fmt"
	"strings"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

var alone = flag.Bool("failover.alone", false,
	"with the data plane service, turn proxy.failover off in the importer, to measure kube-proxy alone")

// proxyForFailovers checks that the default installation runs seamark-proxy on the nodes of every
// cluster, ready, and that doctor says so. nftables needs nothing. With -failover.alone it turns
// the proxy off where the steps after it measure.
func proxyForFailovers(s *suite) {
	if s.dataPlane != v1alpha1.DataPlaneService {
		return
	}
	for _, cluster := range s.Clusters() {
		s.must(s.RolledOut(s.Context(), cluster, "seamark-system", "daemonset/seamark-proxy"))
	}
	if out := s.seamark("--context", s.importer, "doctor"); !strings.Contains(out, "takes over while a cluster is unreachable, is ready on all") {
		s.Errorf("doctor says nothing of the proxy:\n%s", out)
	}
	if *alone {
		s.withoutProxy()
	}
	s.answeredBy(webURL, s.first, s.second)
}

// withoutProxy turns proxy.failover off in the importer.
func (s *suite) withoutProxy() {
	s.Helper()
	s.seamark("--context", s.importer, "join", "--broker-context", s.first, "--broker-server", s.brokerServer(),
		"--clusterid", s.importer, "--set", "proxy.failover=false")
	s.must(s.RolledOut(s.Context(), s.importer, "seamark-system", "deployment/seamark-agent"))
	s.eventually("no proxy runs in "+s.importer, timeout, func() error {
		pods := s.kubectl(s.importer, "-n", "seamark-system", "get", "pods", "-l", "app.kubernetes.io/component=proxy", "-o", "name")
		if pods != "" {
			return fmt.Errorf("%s", pods)
		}
		return nil
	})
}
