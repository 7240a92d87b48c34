//go:build linux

package clusterset_test

import (
	"io"

	"github.com/seamark-dev/seamark/test/e2e/testenv"
	"github.com/seamark-dev/seamark/test/previous"
)

// downgradeAndUpgrade installs the previous version in one cluster after the other, and then this
// one again, each with its own CLI and under load: no request fails while members of both versions
// are in the clusterset. In between, a service that is exported in one version is reached from the
// other.
func downgradeAndUpgrade(s *suite) {
	old, err := previous.Build()
	s.must(err)
	names, err := s.Load(s.Context(), old.Image, io.Discard)
	s.must(err)
	join := func(cluster, cli, image string) {
		_, err := s.SeamarkAt(s.Context(), cli, "--context", cluster, "join", "--broker-context", s.first, "--broker-server", s.brokerServer(),
			"--clusterid", cluster, "--dataplane", string(s.dataPlane), "--image", image)
		s.must(err)
		for _, workload := range s.seamarkWorkloads(cluster) {
			s.must(s.RolledOut(s.Context(), cluster, "seamark-system", workload))
		}
		s.answeredBy("http://"+testenv.WebName, s.first, s.second)
	}
	tally := s.underLoad(func() {
		// The broker's cluster is the last to get an earlier version, and the first to get a later one.
		for _, cluster := range []string{s.importer, s.second, s.first} {
			join(cluster, old.CLI, names[0])
		}
		s.seamark("--context", s.first, "broker", "deploy")
		for _, cluster := range []string{s.first, s.second, s.importer} {
			join(cluster, s.CLI, s.Image())
		}
	})
	if tally.Failed > 0 {
		s.Errorf("%+v", tally)
	}
	s.Logf("%d requests, none failed, the longest time without an answer was %d ms", tally.Requests, tally.LongestGap)
}
