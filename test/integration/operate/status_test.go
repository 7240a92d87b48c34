package operate_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/cli"
	"github.com/seamark-dev/seamark/test/harness"
)

// statusReport is what the tests read of the output of status.
type statusReport struct {
	ClusterSet string `json:"clusterSet"`
	Broker     struct{ Server, Via, Problem string }
	Clusters   []struct {
		ID, State, AgentVersion, DataPlane string
		LastHeartbeat                      *time.Time
		Exports, Endpoints, ReadyEndpoints int
		Imports                            *int
	}
	Services  int
	Attention []struct{ Namespace, Name, State, Cluster, Why string }
}

// The same clusterset seen from a member, from the broker, and over several contexts.
func TestStatusFromEverywhere(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.serve(term.east, ns, "web")
	term.healthy(ns, "web", "east,west")
	for line, via := range map[string]string{
		"status":                             "cluster east, with its own credential",
		"status --context west":              "cluster west, with its own credential",
		"status --context broker":            "context broker",
		"status --broker-context broker":     "context broker",
		"status --contexts west,broker,east": "cluster west, with its own credential",
		"status --contexts east,west -owide": "cluster east, with its own credential",
	} {
		o := term.eventually(line, "Clusterset ", "asked as "+via, "CLUSTER", "HEARTBEAT", "east", "west", "alive")
		if regexp.MustCompile(`(?m)^east .*\d+s ago`).FindString(o.Stdout) == "" {
			t.Errorf("seamark %s: no age of the heartbeat:\n%s", line, o.Stdout)
		}
	}
	harness.Eventually(t, "the agents have published their status", func() error {
		p := decode[statusReport](t, term.run("status --contexts east,west -o json"))
		if len(p.Clusters) != 2 || p.Services < 1 || p.Broker.Problem != "" || p.ClusterSet == "" {
			return fmt.Errorf("%+v", p)
		}
		for _, c := range p.Clusters {
			if c.State != "alive" || c.LastHeartbeat == nil || c.AgentVersion == "" || c.DataPlane == "" || c.Imports == nil || *c.Imports < 1 {
				return fmt.Errorf("%+v", c)
			}
		}
		if p.Clusters[0].Exports < 1 || p.Clusters[0].ReadyEndpoints < 2 {
			return fmt.Errorf("%+v", p.Clusters[0])
		}
		return nil
	})
	if p := decode[statusReport](t, term.run("status --context broker -o json")); p.Clusters[0].Imports != nil {
		t.Errorf("the broker does not know what east imports: %+v", p.Clusters[0])
	}
	var value map[string]any
	if err := yaml.UnmarshalStrict([]byte(term.run("status -o yaml").Stdout), &value); err != nil || value["clusters"] == nil {
		t.Errorf("%v: %v", err, value)
	}
}

// Services that need attention are listed with the reason, and no others.
func TestStatusAttention(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.east.Export(t, ns, "ghost")
	term.serve(term.east, ns, "fine")
	term.eventually("status", ns+"/ghost", "FAILING", "there is no Service ghost")
	term.healthy(ns, "fine", "east,west")
	p := decode[statusReport](t, term.run("status --contexts east,west -o json"))
	for _, a := range p.Attention {
		if a.Namespace == ns && (a.Name != "ghost" || a.Cluster != "east" || a.State != "failing") {
			t.Errorf("%+v", a)
		}
	}
	if !slices.ContainsFunc(p.Attention, func(a struct{ Namespace, Name, State, Cluster, Why string }) bool { return a.Namespace == ns }) {
		t.Errorf("%+v", p.Attention)
	}
}

// A user who may read services but no Secret still sees the cluster, and how to read the broker.
func TestStatusWithoutTheSecret(t *testing.T) {
	term := sharedClusterset(t)
	user := "viewer-" + term.namespace()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"multicluster.x-k8s.io", "about.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"services", "namespaces"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list"}},
	}}
	term.east.Create(t, role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	term.impersonate("east", user)
	term.eventually("status --context viewer", "the membership Secret cannot be read", "--broker-context", "east", "unknown")
	term.expect(0, "status --context viewer --broker-context broker", "asked as context broker", "alive")
	term.expect(0, "get exports -A --context viewer")
	term.eventually("doctor --context viewer", "WARN  permissions", "get secrets seamark-broker in seamark-system", "SKIP  broker")
}

// impersonate adds a context "viewer" that acts as another user of a cluster.
func (term *terminal) impersonate(name, user string) {
	term.t.Helper()
	term.changeKubeconfig(func(config *clientcmdapi.Config) {
		as := config.AuthInfos[name].DeepCopy()
		as.Impersonate = user
		config.AuthInfos["viewer"] = as
		config.Contexts["viewer"] = &clientcmdapi.Context{Cluster: name, AuthInfo: "viewer"}
	})
}

// A cluster that is no member, and a kubeconfig without the context.
func TestStatusWhereThereIsNothing(t *testing.T) {
	term := sharedClusterset(t)
	term.expect(1, "status --context nowhere", "error: ", "nowhere")
	term.kubeconfig = harness.Fresh(t, 1)[0].Kubeconfig()
	term.expect(1, "status", "error: nothing could be learned", "none of the clusters looked into is a member")
	term.expect(1, "doctor", "FAIL  membership", "seamark join")
	term.expect(1, "explain web", "WARN not-a-member", "seamark join", "broker-unreachable")
	term.expect(0, "get exports -A", "No exports in any namespace")
	term.expect(0, "get exports", "No exports here", "-A")
	term.expect(0, "get imports -A", "No imports in any namespace")
	term.expect(0, "get imports", "No imports here", "-A")
	term.expect(1, "export namespace default --yes", "seamark join")
}

// Several clusters in one table.
func TestGet(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east, term.west)
	term.serve(term.east, ns, "web")
	term.west.Export(t, ns, "ghost")
	term.eventually(fmt.Sprintf("get exports -n %s --contexts east,west", ns),
		"CLUSTER", "VALID", "east", "web", "west", "ghost", "False/NoService")
	o := term.eventually(fmt.Sprintf("get imports -n %s --contexts east,west -o wide", ns),
		"FROM", "MESSAGE", "80/TCP", "the service is imported")
	lines := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "east") || !strings.HasPrefix(lines[2], "west") {
		t.Errorf("%s", o.Stdout)
	}
	term.expect(0, fmt.Sprintf("get exports -n %s --context west", ns), "ghost")
	term.expect(0, "get exports -A -o wide --contexts west", "there is no Service ghost", ns)
	term.eventually("get clusters -o wide --contexts east,west", "BLOCKS", "243.", "alive")
	got := decode[struct {
		Imports []struct {
			Cluster, Namespace, Name, Ready string
			IPs, Ports, From                []string
		}
	}](t, term.run("get imports -n %s --contexts east,west -o json", ns)).Imports
	if len(got) != 2 || got[0].Cluster != "east" || got[1].Cluster != "west" || got[1].Ready != "True" ||
		len(got[1].IPs) == 0 || got[1].From[0] != "east" {
		t.Errorf("%+v", got)
	}
	term.expect(2, "get exports -o table", "choose json, yaml or wide")
	term.expect(2, "get", "choose one of clusters, exports, imports")
}

// screen is what a running command has written so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A watch shows changes until it is interrupted.
func TestWatch(t *testing.T) {
	term := sharedClusterset(t)
	ns := term.namespace(term.east)
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	shown, done := &screen{}, make(chan int, 1)
	args := []string{"get", "exports", "-n", ns, "--watch", "--interval", "50ms", "--kubeconfig", term.kubeconfig}
	go func() { done <- cli.Run(ctx, args, strings.NewReader(""), shown, shown) }()
	shows := func(part string) {
		t.Helper()
		harness.Eventually(t, "the screen shows "+part, func() error {
			if !strings.Contains(shown.String(), part) {
				return fmt.Errorf("it shows:\n%s", shown)
			}
			return nil
		})
	}
	shows("No exports here")
	term.serve(term.east, ns, "web")
	shows("web")
	shows("True    False")
	interrupt()
	if code := <-done; code != 0 {
		t.Errorf("exit %d after an interrupt:\n%s", code, shown)
	}
	term.expect(2, "status --watch --interval 0s", "--interval")
}
