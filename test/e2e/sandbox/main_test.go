// Package sandbox_test tests the sandbox: its clusters start, run pods and services, and leave
// nothing behind. The tests need root, as the sandbox does.
package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// sandboxName is not the default, so that a developer's own sandbox is not touched.
const sandboxName = "selftest"

var kube string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run keeps the state in a fixed folder, so that the next run finds and removes what a killed one
// left.
func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard()) // libraries log what they retry; failures are in the errors of the sandbox
	base := filepath.Join(os.TempDir(), "seamark-e2e-sandbox")
	if err := os.Setenv(sandbox.DirEnv, base); err != nil {
		panic(err)
	}
	var err error
	if kube, err = kubeparts.Kube(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := down(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(down(), os.RemoveAll(base)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// down removes the sandbox if there is one.
func down() error { return testenv.Down(context.Background(), sandboxName, os.Stderr) }

// removeAtEnd removes the sandbox at the end of a test that failed before it did so itself.
func removeAtEnd(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := down(); err != nil {
			t.Error(err)
		}
	})
}

func up(t *testing.T, o sandbox.Options) *testenv.Env {
	t.Helper()
	o.Name, o.Progress = sandboxName, t.Output()
	s, err := sandbox.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Use(s, kube)
}

func mustKubectl(t *testing.T, s *testenv.Env, cluster string, args ...string) string {
	t.Helper()
	text, err := s.Kubectl(t.Context(), cluster, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runPod starts a pod of the workload image and waits until it is ready.
func runPod(t *testing.T, s *testenv.Env, cluster, name string, args ...string) {
	t.Helper()
	run := []string{"run", name, "--image", s.WorkloadImage(), "--labels", "app=" + name, "--env", "CLUSTER=" + cluster, "--"}
	mustKubectl(t, s, cluster, append(run, args...)...)
	mustKubectl(t, s, cluster, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=120s")
}

// podIPs are the addresses of a pod, the primary one first.
func podIPs(t *testing.T, s *testenv.Env, cluster, name string) []string {
	t.Helper()
	return strings.Fields(mustKubectl(t, s, cluster, "get", "pod", name, "-o", "jsonpath={.status.podIPs[*].ip}"))
}

// namespace is where the tests have their pods.
const namespace = "default"

// call sends requests from a pod.
func call(t *testing.T, s *testenv.Env, cluster, pod, target string, args ...string) testenv.Tally {
	t.Helper()
	result, err := tryCall(t, s, cluster, pod, target, args...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// tryCall is call with an error: a kubelet that was just started may not know its pods yet.
func tryCall(t *testing.T, s *testenv.Env, cluster, pod, target string, args ...string) (testenv.Tally, error) {
	t.Helper()
	return s.Call(t.Context(), cluster, namespace, pod, target, append([]string{"--timeout", "1s"}, args...)...)
}

// answers waits until three requests from a pod are all answered by the cluster.
func answers(t *testing.T, s *testenv.Env, from, pod, target, by string) testenv.Tally {
	t.Helper()
	var last testenv.Tally
	eventually(t, fmt.Sprintf("%s answers %s in %s under %s", by, pod, from, target), func() (err error) {
		if last, err = tryCall(t, s, from, pod, target, "--count", "3"); err != nil {
			return err
		}
		if last.Clusters[by] != 3 {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
	return last
}

// lookup resolves a name in a pod and returns the answers.
func lookup(t *testing.T, s *testenv.Env, cluster, pod, name, kind string) []string {
	t.Helper()
	answers, err := s.Lookup(t.Context(), cluster, namespace, pod, name, kind)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// eventually calls check until it returns nil, for at most a minute.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	if err := testenv.Poll(t.Context(), what, time.Minute, check); err != nil {
		t.Fatal(err)
	}
}
