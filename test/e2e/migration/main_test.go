//go:build linux

// Package migration_test moves three real clusters with pods from Submariner Lighthouse to Seamark,
// by the commands that an operator of Submariner runs, while clients in all clusters look names up
// and send requests all the time. None of them may fail.
//
// Submariner's operator and Lighthouse's agent are those of release 0.24, built from their modules.
// The module of Lighthouse's DNS server is not published: test/e2e/lighthousedns answers in its
// place. There are no gateways and tunnels: the sandbox has a flat network. The tests need root, as
// the sandbox does.
package migration_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// sandboxName is not the default, so that a developer's own sandbox is not touched.
const sandboxName = "migration"

// timeout is how long most changes may take to arrive.
const timeout = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, "migration", sandboxName)) }

// suite is a test with a sandbox of three clusters. The first has both brokers.
type suite struct {
	*testing.T
	*testenv.Env
	broker string
}

func TestMove(t *testing.T) {
	env, err := testenv.Up(t.Context(), t.TempDir(), sandbox.Options{Name: sandboxName, Clusters: 3, Bare: true, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := testenv.Down(context.Background(), sandboxName, t.Output()); err != nil {
			t.Error(err)
		}
	}()
	s := &suite{T: t, Env: env, broker: env.Clusters()[0]}
	defer s.describeFailure()
	s.installSubmariner()
	s.exportServices()
	before := s.importUIDs()
	clients := s.startClients()
	for _, step := range []struct {
		name string
		run  func(*suite)
	}{
		{"Check", check},
		{"StartAndJoin", startAndJoin},
		{"OperatorRestarts", operatorRestarts},
		{"Switch", switchAll},
		{"BackAndSwitchAgain", backAndSwitchAgain},
		{"Finish", finish},
		{"CleanUp", cleanUp},
		{"OperatorRestarts", operatorRestarts},
		{"SeamarkServes", seamarkServes},
	} {
		began := time.Now()
		ok := t.Run(step.name, func(t *testing.T) {
			inner := *s
			inner.T = t
			step.run(&inner)
		})
		clients.steps = append(clients.steps, stepTime{step.name, began, time.Now()})
		t.Logf("%s: %s", step.name, time.Since(began).Round(time.Second))
		if !ok {
			break // the next steps need this one
		}
	}
	clients.judge(s)
	if after := s.importUIDs(); !t.Failed() && after != before {
		t.Errorf("ServiceImports were replaced: their uids are\n%s, they were\n%s", after, before)
	}
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) apply(cluster, text string) {
	s.Helper()
	s.must(s.Apply(s.Context(), cluster, text))
}

func (s *suite) kubectl(cluster string, args ...string) string {
	s.Helper()
	text, err := s.Kubectl(s.Context(), cluster, args...)
	s.must(err)
	return text
}

// migrate runs a command of the move in a cluster and logs what it prints.
func (s *suite) migrate(cluster string, args ...string) string {
	s.Helper()
	text, err := s.tryMigrate(cluster, args...)
	s.must(err)
	return text
}

func (s *suite) tryMigrate(cluster string, args ...string) (string, error) {
	text, err := s.Seamark(s.Context(), append([]string{"--context", cluster, "migrate", "lighthouse"}, args...)...)
	s.Logf("%s: migrate lighthouse %v\n%s", cluster, args, text)
	return text, err
}

// eventually calls check until it returns nil, and fails the test after the timeout.
func (s *suite) eventually(what string, check func() error) {
	s.Helper()
	s.must(testenv.Poll(s.Context(), what, timeout, check))
}

// clusterStatus returns what the sandbox says about a cluster.
func (s *suite) clusterStatus(name string) sandbox.ClusterStatus {
	s.Helper()
	for _, c := range s.Status(s.Context()).Clusters {
		if c.Name == name {
			return c
		}
	}
	s.Fatalf("the sandbox has no cluster %s", name)
	panic("not reached")
}

// importUIDs returns the uids of the ServiceImports in all clusters.
func (s *suite) importUIDs() string {
	s.Helper()
	out := ""
	for _, cluster := range s.Clusters() {
		out += cluster + " " + s.kubectl(cluster, "-n", "shop", "get", "serviceimports.multicluster.x-k8s.io", "db", "web",
			"-o", "jsonpath={.items[*].metadata.uid}") + "\n"
	}
	return out
}

// describeFailure logs the state of the pods after a failure, before the sandbox is removed.
func (s *suite) describeFailure() {
	if !s.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, cluster := range s.Clusters() {
		for _, args := range [][]string{
			{"get", "pods", "-A", "-o", "wide"},
			{"-n", operatorNamespace, "logs", "deployment/submariner-operator", "--tail=40"},
			{"-n", operatorNamespace, "logs", "deployment/submariner-lighthouse-agent", "--tail=40"},
			{"-n", "seamark-system", "logs", "deployment/seamark-agent", "--tail=40"},
			{"-n", "seamark-system", "logs", "deployment/seamark-dns", "--tail=20"},
			{"-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"},
		} {
			text, err := s.Kubectl(ctx, cluster, args...)
			s.Logf("%s: kubectl %v\n%s%v", cluster, args, text, err)
		}
	}
}
