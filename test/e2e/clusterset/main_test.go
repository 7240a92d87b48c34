//go:build linux

// Package clusterset_test tests Seamark end to end: real clusters, pods and DNS, installed by
// `seamark join`, with both data planes. The tests need root, as the sandbox does.
package clusterset_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
	"github.com/seamark-dev/seamark/test/harness"
)

// sandboxName is not the default, so that a developer's own sandbox is not touched.
const sandboxName = "e2e"

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, "clusterset", sandboxName)) }

// suite is a test with a sandbox of three clusters. The first has the broker and serves, the second
// serves, and the importer has the client.
type suite struct {
	*testing.T
	*testenv.Env
	first, second, importer string
	dataPlane               v1alpha1.DataPlane
}

// planes are the data planes with which a step runs.
type planes int

const (
	onService  planes = 1
	onNFTables planes = 2
	everywhere planes = onService | onNFTables
)

// steps run in this order; most of them need earlier ones.
var steps = []step{
	{"QuickStart", quickStart, everywhere, everywhere},
	{"ImportedServiceIsReached", imported, everywhere, everywhere},
	{"LocalServiceOfTheSameNameIsNotAffected", localNotAffected, everywhere, onService},
	{"BothClustersAnswer", both, everywhere, everywhere},
	{"PodsOfStatefulSetsHaveNames", statefulSet, everywhere, onNFTables},
	{"EveryRecordThroughThePodsResolver", allRecords, everywhere, onNFTables},
	{"UDP", udp, everywhere, everywhere},
	{"SessionAffinity", affinity, everywhere, everywhere},
	{"EveryPanelOfTheDashboardHasData", everyPanelHasData, everywhere, onNFTables},
	{"RollingRestart", rollingRestart, everywhere, onService},
	{"Upgrade", upgrade, everywhere, onNFTables},
	{"DowngradeAndUpgrade", downgradeAndUpgrade, onNFTables, onNFTables},
	{"IdleCost", idleCost, onNFTables, onNFTables},
	{"ProxyForFailovers", proxyForFailovers, onService, onService},
	{"Failover", failover, everywhere, everywhere},
	{"LogsNameTheClusterAndRepeatNothing", logs, everywhere, onNFTables},
	{"FailoverOfManyServices", failoverOfMany, everywhere, onNFTables},
	{"FlowsToOtherClustersStay", flowsStay, everywhere, onService},
	{"AgentRestartsDuringACut", agentRestartsDuringACut, onService, onService},
	{"BadLinks", badLinks, onNFTables, onNFTables},
	{"AloneInTheNetwork", aloneInTheNetwork, onNFTables, onNFTables},
	{"BeaconsBlocked", beaconsBlocked, onService, onService},
	{"ControlPlaneOutage", controlPlaneOutage, onService, onService},
	{"LeaveAndRejoin", leaveAndRejoin, everywhere, onService},
	{"Uninstall", uninstall, everywhere, onNFTables},
}

type step struct {
	name string
	run  func(*suite)
	// normally is where it runs, and inShort where it does in a short run, as in CI. With
	// -failover.all it runs everywhere.
	normally, inShort planes
}

// runs reports whether the step runs with a data plane.
func (s step) runs(plane v1alpha1.DataPlane) bool {
	where := s.normally
	switch {
	case *all:
		where = everywhere
	case harness.Short():
		where = s.inShort
	}
	if plane == v1alpha1.DataPlaneService {
		return where&onService != 0
	}
	return where&onNFTables != 0
}

// TestClusterset runs all steps on one sandbox after the other.
func TestClusterset(t *testing.T) {
	for _, o := range []sandbox.Options{
		{DataPlane: v1alpha1.DataPlaneService, Family: sandbox.IPv4},
		{DataPlane: v1alpha1.DataPlaneNFTables, Family: sandbox.Dual},
	} {
		t.Run(string(o.DataPlane)+"-"+string(o.Family), func(t *testing.T) {
			o.Name, o.Clusters, o.Progress = sandboxName, 3, t.Output()
			b, err := testenv.Up(t.Context(), t.TempDir(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := testenv.Down(context.Background(), sandboxName, t.Output()); err != nil {
					t.Error(err)
				}
			}()
			names := b.Clusters()
			s := &suite{T: t, Env: b, first: names[0], second: names[1], importer: names[2], dataPlane: o.DataPlane}
			for _, step := range steps {
				if !step.runs(o.DataPlane) {
					continue
				}
				ok := t.Run(step.name, func(t *testing.T) {
					inner := *s
					inner.T = t
					step.run(&inner)
				})
				if !ok {
					return // the next steps need this one
				}
			}
		})
	}
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) kubectl(cluster string, args ...string) string {
	s.Helper()
	text, err := s.Kubectl(s.Context(), cluster, args...)
	s.must(err)
	return text
}

func (s *suite) seamark(args ...string) string {
	s.Helper()
	text, err := s.Seamark(s.Context(), args...)
	s.must(err)
	return text
}

// call sends requests from the client.
func (s *suite) call(target string, args ...string) testenv.Tally {
	s.Helper()
	tally, err := s.Call(s.Context(), s.importer, "shop", "client", target, args...)
	s.must(err)
	return tally
}

func (s *suite) lookup(name, kind string) []string {
	s.Helper()
	answers, err := s.Lookup(s.Context(), s.importer, "shop", "client", name, kind)
	s.must(err)
	return answers
}

// eventually calls check until it returns nil, and fails the test after the timeout.
func (s *suite) eventually(what string, timeout time.Duration, check func() error) {
	s.Helper()
	s.must(testenv.Poll(s.Context(), what, timeout, check))
}

// timeout is how long most changes may take to arrive.
const timeout = 90 * time.Second
