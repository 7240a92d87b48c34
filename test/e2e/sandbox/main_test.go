// Package sandbox_test holds the sandbox to its word: real clusters come up, do what clusters do, and leave nothing behind. It needs root, as
// the sandbox does.
package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// sandboxName is not the default, so that a developer's own sandbox does not mind.
const sandboxName = "selftest"

var kube string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run keeps the state at a fixed place: what a killed run left is found by the next one.
func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard()) // libraries log what they retry; what fails is told by the sandbox
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

// down ends the sandbox if there is one.
func down() error {
	err := sandbox.Down(context.Background(), sandboxName, os.Stderr)
	if errors.Is(err, sandbox.ErrNone) {
		return nil
	}
	return err
}

// testLog sends progress to the log of a test.
type testLog struct{ t *testing.T }

func (l testLog) Write(text []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

// downAtLast takes the sandbox away at the end of a test that failed before it did so itself.
func downAtLast(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := down(); err != nil {
			t.Error(err)
		}
	})
}

func up(t *testing.T, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	o.Name, o.Progress = sandboxName, testLog{t}
	s, err := sandbox.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// kubectl runs kubectl in a cluster and returns what it prints.
func kubectl(t *testing.T, s *sandbox.Sandbox, cluster string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kube, append([]string{"kubectl", "--kubeconfig", s.Kubeconfig(), "--context", cluster}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl --context %s %s: %w\n%s", cluster, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func mustKubectl(t *testing.T, s *sandbox.Sandbox, cluster string, args ...string) string {
	t.Helper()
	text, err := kubectl(t, s, cluster, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runPod starts a pod of the workload image and waits until it is ready.
func runPod(t *testing.T, s *sandbox.Sandbox, cluster, name string, args ...string) {
	t.Helper()
	mustKubectl(t, s, cluster, append([]string{"run", name, "--image", s.WorkloadImage(), "--labels", "app=" + name, "--env", "CLUSTER=" + cluster, "--"}, args...)...)
	mustKubectl(t, s, cluster, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=120s")
}

// podIPs are the addresses of a pod, the primary one first.
func podIPs(t *testing.T, s *sandbox.Sandbox, cluster, name string) []string {
	t.Helper()
	return strings.Fields(mustKubectl(t, s, cluster, "get", "pod", name, "-o", "jsonpath={.status.podIPs[*].ip}"))
}

// tally is what `workload call` prints.
type tally struct {
	Requests int            `json:"requests"`
	Failed   int            `json:"failed"`
	Clusters map[string]int `json:"clusters"`
	Clients  map[string]int `json:"clients"`
	Errors   map[string]int `json:"errors"`
}

// call sends requests from a pod.
func call(t *testing.T, s *sandbox.Sandbox, cluster, pod, target string, args ...string) tally {
	t.Helper()
	result, err := tryCall(t, s, cluster, pod, target, args...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// tryCall is call for when a kubelet may just have been started, and not know its pods yet.
func tryCall(t *testing.T, s *sandbox.Sandbox, cluster, pod, target string, args ...string) (result tally, err error) {
	t.Helper()
	text, err := kubectl(t, s, cluster, append([]string{"exec", pod, "--", "workload", "call", target, "--timeout", "1s"}, args...)...)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return result, fmt.Errorf("%w in: %s", err, text)
	}
	return result, nil
}

// answers waits until every one of a few requests from a pod is answered by the cluster.
func answers(t *testing.T, s *sandbox.Sandbox, from, pod, target, by string) tally {
	t.Helper()
	var last tally
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

// lookup asks for a name in a pod and returns the answers.
func lookup(t *testing.T, s *sandbox.Sandbox, cluster, pod, name, kind string) []string {
	t.Helper()
	text := mustKubectl(t, s, cluster, "exec", pod, "--", "workload", "lookup", name, "--type", kind)
	var result struct {
		Answers []string `json:"answers"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		t.Fatalf("%v in: %s", err, text)
	}
	return result.Answers
}

// eventually asks until there is no error, for a minute.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// slotOf is the number that the links of the sandbox bear.
func slotOf(t *testing.T) int {
	t.Helper()
	var state struct{ Slot *int }
	text, err := os.ReadFile(filepath.Join(os.Getenv(sandbox.DirEnv), sandboxName, "sandbox.json"))
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil || state.Slot == nil {
		t.Fatalf("the sandbox's state: %v: %s", err, text)
	}
	bridge := fmt.Sprintf("seamark%d", *state.Slot)
	if _, err := netlink.LinkByName(bridge); err != nil {
		t.Errorf("%s, which is there while the sandbox is: %v", bridge, err)
	}
	return *state.Slot
}

// traces are what of a sandbox the machine still shows: processes, mounts, links, network namespaces, control groups and files. Only what bears
// its name or number is looked at, because others work on the machine too.
func traces(t *testing.T, slot int) []string {
	t.Helper()
	var found []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, sandboxName) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == fmt.Sprintf("seamark%d", slot) || strings.HasPrefix(name, fmt.Sprintf("smk%dn", slot)) {
			found = append(found, "link "+name)
		}
	}
	for _, pattern := range []string{
		"/run/netns/*" + sandboxName + "*", "/var/lib/cni/results/*" + sandboxName + "*", "/run/seamark-sandbox/" + sandboxName + "*",
		filepath.Join(os.Getenv(sandbox.DirEnv), "*"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	return append(found, processTraces(t)...)
}

// processTraces are processes that carry the sandbox's folder in their environment or arguments, or live on a root below it.
func processTraces(t *testing.T) (found []string) {
	t.Helper()
	dir := filepath.Join(os.Getenv(sandbox.DirEnv), sandboxName)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"environ", "cmdline", "mountinfo"} {
			text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), file))
			if err == nil && bytes.Contains(text, []byte(dir+"/")) {
				found = append(found, "process "+entry.Name()+" by its "+file)
			}
		}
	}
	return found
}
