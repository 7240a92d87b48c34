package sandbox_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// must fails the test on an error of a fault.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// heal ends faults from a Sandbox that was opened again, as by another command, and checks which
// they were.
func heal(t *testing.T, selection fault.Selection, want ...fault.Fault) {
	t.Helper()
	opened, err := sandbox.Open(sandboxName)
	must(t, err)
	healed, err := opened.Heal(t.Context(), selection)
	must(t, err)
	if diff := cmp.Diff(want, healed); diff != "" {
		t.Errorf("healed:\n%s", diff)
	}
}

// webTargets returns the URLs of the pod web of each cluster.
func webTargets(t *testing.T, s *testenv.Env) map[string]string {
	t.Helper()
	target := map[string]string{}
	for _, cluster := range s.Clusters() {
		target[cluster] = "http://" + podIPs(t, s, cluster, "web")[0] + ":8080"
	}
	return target
}

func checkCut(t *testing.T, s *testenv.Env) {
	target, both := webTargets(t, s), map[string]string{"east": "west", "west": "east"}
	for range 2 { // a fault that exists is no error
		must(t, s.Cut(t.Context(), fault.Path{From: "west", To: "east"}))
	}
	for from, to := range both {
		if got := call(t, s, from, "client", target[to], "--count", "2"); got.Failed != 2 {
			t.Errorf("%s is cut off from %s, but gets answers: %+v", from, to, got)
		}
		answers(t, s, from, "client", target[from], from)
	}
	cuts := []fault.Fault{{Kind: fault.Cut, From: "east", To: "west"}, {Kind: fault.Cut, From: "west", To: "east"}}
	if diff := cmp.Diff(cuts, s.Status(t.Context()).Faults); diff != "" {
		t.Errorf("faults:\n%s", diff)
	}
	heal(t, fault.Selection{Clusters: []string{"east", "west"}}, cuts...)
	for from, to := range both {
		answers(t, s, from, "client", target[to], to)
	}
	err := s.Cut(t.Context(), fault.Path{From: "east", To: "moon"})
	if err == nil || !strings.Contains(err.Error(), "choose from east, west") {
		t.Errorf("cut from a cluster that does not exist: %v", err)
	}
}

// checkDelay delays packets so much that a round trip takes longer than the timeout of a request.
// A request that waits longer is answered, and so is one after the delay is made shorter.
func checkDelay(t *testing.T, s *testenv.Env) {
	target, path := webTargets(t, s)["west"], fault.Path{From: "west", To: "east", OneWay: true}
	must(t, s.Delay(t.Context(), path, 1500*time.Millisecond))
	if got := call(t, s, "east", "client", target, "--count", "2"); got.Failed != 2 {
		t.Errorf("answers arrive within a second, although they are delayed: %+v", got)
	}
	if got := call(t, s, "east", "client", target, "--timeout", "30s"); got.Clusters["west"] != 1 {
		t.Errorf("a delayed answer did not arrive: %+v", got)
	}
	must(t, s.Delay(t.Context(), path, time.Millisecond))
	answers(t, s, "east", "client", target, "west")
	heal(t, fault.Selection{Kind: fault.Delay}, fault.Fault{
		Kind: fault.Delay, From: "west", To: "east", Delay: metav1.Duration{Duration: time.Millisecond},
	})
	answers(t, s, "east", "client", target, "west")
}

// identities returns the containers of a cluster's pods with their restarts, which change when
// kubelet restarts or replaces them.
func identities(t *testing.T, s *testenv.Env, cluster string) string {
	t.Helper()
	return mustKubectl(t, s, cluster, "get", "pods", "-A", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.podIP} {.status.containerStatuses[*].containerID} `+
			`{.status.containerStatuses[*].restartCount}{"\n"}{end}`)
}

// checkControlPlane stops the control plane of west. Its pod and its Service answer meanwhile, and
// after the heal all pods are the same as before.
func checkControlPlane(t *testing.T, s *testenv.Env) {
	pods, before := identities(t, s, "west"), s.Status(t.Context()).Clusters[1].Processes
	service := "http://" + mustKubectl(t, s, "west", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}") + ":8080"
	pod := webTargets(t, s)["west"]
	for range 2 {
		must(t, s.StopControlPlane(t.Context(), "west"))
	}
	status := s.Status(t.Context()).Clusters[1]
	if status.Ready || status.Problem != "the control plane of west is stopped, its pods run" {
		t.Errorf("status: %+v", status)
	}
	running := slices.Sorted(maps.Keys(status.Processes))
	if want := []string{"containerd", "kube-proxy", "kubelet"}; !slices.Equal(running, want) {
		t.Errorf("running: %v, want %v", running, want)
	}
	for name, pid := range status.Processes {
		if pid != before[name] {
			t.Errorf("%s was restarted", name)
		}
	}
	for _, target := range []string{pod, service} {
		if got := call(t, s, "east", "client", target, "--count", "50", "--interval", "50ms"); got.Clusters["west"] != 50 {
			t.Errorf("%s without a control plane: %+v", target, got)
		}
	}
	heal(t, fault.Selection{Clusters: []string{"west"}}, fault.Fault{Kind: fault.ControlPlane, Cluster: "west"})
	if status := s.Status(t.Context()); !status.Ready() { // s itself has not ended the fault
		t.Errorf("after the heal: %+v", status)
	}
	if after := identities(t, s, "west"); after != pods {
		t.Errorf("pods before:\n%s\nafter:\n%s", pods, after)
	}
	answers(t, s, "west", "client", "http://web:8080", "west")
}

// checkNode stops the node of west. Its pods are silent, its API server answers. After the heal
// kubelet has started the containers again.
func checkNode(t *testing.T, s *testenv.Env) {
	target := webTargets(t, s)["west"]
	must(t, s.StopNode(t.Context(), "west"))
	got := call(t, s, "east", "client", target, "--count", "2")
	for message := range got.Errors {
		if !strings.Contains(message, "timeout") && !strings.Contains(message, "deadline") {
			t.Errorf("a stopped node does not answer, but a request fails with: %s", message)
		}
	}
	if got.Failed != 2 {
		t.Errorf("the node of west is stopped, but its pod answers: %+v", got)
	}
	mustKubectl(t, s, "west", "get", "nodes")
	heal(t, fault.Selection{}, fault.Fault{Kind: fault.Node, Cluster: "west"})
	answers(t, s, "west", "client", "http://web:8080", "west")
	answers(t, s, "east", "client", webTargets(t, s)["west"], "west")
}
