//go:build linux

package clusterset_test

import (
	"strings"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// proxyForFailovers lets seamark-proxy run beside kube-proxy in the importing cluster, as a user
// does who wants failovers of the data plane service within two seconds. nftables needs nothing.
func proxyForFailovers(s *suite) {
	if s.dataPlane != v1alpha1.DataPlaneService {
		return
	}
	s.seamark("--context", s.importer, "join", "--broker-context", s.first, "--broker-server", s.brokerServer(),
		"--clusterid", s.importer, "--set", "proxy.failover=true")
	for _, workload := range []string{"daemonset/seamark-proxy", "deployment/seamark-agent"} {
		s.must(s.RolledOut(s.Context(), s.importer, "seamark-system", workload))
	}
	if out := s.seamark("--context", s.importer, "doctor"); !strings.Contains(out, "takes over while a cluster is unreachable") {
		s.Errorf("doctor says nothing of the proxy:\n%s", out)
	}
	s.answeredBy(webURL, s.first, s.second)
}
