// Package operate_test runs the commands that inspect a clusterset, on real clustersets whose
// agents run: arguments in, text and exit code out.
package operate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/server"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/transcript"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // of libraries; only the output of commands is tested
	server.Configure()
	dnsserver.Quiet = true
	harness.Main(m)
}

// terminal runs commands with a kubeconfig that has the contexts broker, east and, where there is
// one, west of a clusterset whose agents run.
type terminal struct {
	t          testing.TB
	kubeconfig string
	fleet      *fleet.Fleet
	east, west *fleet.Member
}

var (
	sharedOnce sync.Once
	shared     *fleet.Fleet
	errShared  error
)

// sharedClusterset returns a terminal for the clusterset that all tests share. Each test uses its
// own namespaces and changes nothing else for good.
func sharedClusterset(t testing.TB) *terminal {
	t.Helper()
	cps := harness.Clusters(t, 3)
	sharedOnce.Do(func() { shared, errShared = startFleet(cps, fleet.Options{}) })
	if errShared != nil {
		t.Fatal(errShared)
	}
	return terminalFor(t, shared)
}

// freshClusterset returns a terminal for a clusterset that the test may break.
func freshClusterset(t testing.TB) *terminal {
	t.Helper()
	f, err := startFleet(harness.Fresh(t, 3), fleet.Options{DataPlanes: map[string]v1alpha1.DataPlane{"west": v1alpha1.DataPlaneNone}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return terminalFor(t, f)
}

func startFleet(cps []*controlplane.ControlPlane, o fleet.Options) (*fleet.Fleet, error) {
	f, err := fleet.New(context.Background(), cps[0], cps[1:], o)
	if err != nil {
		return nil, err
	}
	return f, f.Start()
}

func terminalFor(t testing.TB, f *fleet.Fleet) *terminal {
	t.Helper()
	term := &terminal{t: t, fleet: f, east: f.Members[0], kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	t.Cleanup(func() { checkShown(t) })
	planes := map[string]*controlplane.ControlPlane{"broker": f.Broker, "east": term.east.CP}
	if len(f.Members) > 1 {
		term.west = f.Members[1]
		planes["west"] = term.west.CP
	}
	config := clientcmdapi.NewConfig()
	for name, cp := range planes {
		addContext(config, name, cp.Config())
	}
	config.CurrentContext = "east"
	if err := clientcmd.WriteToFile(*config, term.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return term
}

// addContext adds a context for a client configuration to a kubeconfig, or replaces it.
func addContext(config *clientcmdapi.Config, name string, rc *rest.Config) {
	config.Clusters[name] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
}

// changeKubeconfig changes the kubeconfig of the terminal.
func (term *terminal) changeKubeconfig(change func(*clientcmdapi.Config)) {
	term.t.Helper()
	config, err := clientcmd.LoadFromFile(term.kubeconfig)
	if err != nil {
		term.t.Fatal(err)
	}
	change(config)
	if err := clientcmd.WriteToFile(*config, term.kubeconfig); err != nil {
		term.t.Fatal(err)
	}
}

// namespace creates a namespace with a new name in the given members, and returns the name.
func (term *terminal) namespace(in ...*fleet.Member) string {
	term.t.Helper()
	return fleet.NewNamespace(term.t, in...)
}

func (term *terminal) run(format string, args ...any) transcript.Result {
	return term.runIn(context.Background(), fmt.Sprintf(format, args...))
}

func (term *terminal) runIn(ctx context.Context, line string) transcript.Result {
	o := transcript.Run(ctx, term.kubeconfig, "", line)
	recordCodes(term.t, o.Stdout)
	return o
}

// expect runs a command that must exit with a code and print all the parts.
func (term *terminal) expect(code int, line string, parts ...string) transcript.Result {
	term.t.Helper()
	o := term.run("%s", line)
	if problem := o.Lacks(code, parts...); problem != nil {
		term.t.Errorf("seamark %s: %v", line, problem)
	}
	return o
}

// eventually repeats a command until it succeeds and prints all the parts.
func (term *terminal) eventually(line string, parts ...string) transcript.Result {
	term.t.Helper()
	var o transcript.Result
	harness.Eventually(term.t, "seamark "+line, func() error {
		o = term.run("%s", line)
		return o.Lacks(0, parts...)
	})
	return o
}

// membership returns the Secret with which a member reaches the broker.
func membership(t testing.TB, m *fleet.Member) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}
	if err := m.Client.Get(context.Background(), key, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// decode decodes the JSON that a command printed.
func decode[T any](t testing.TB, o transcript.Result) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(o.Stdout), &value); err != nil {
		t.Fatalf("not JSON: %v\n%s%s", err, o.Stdout, o.Stderr)
	}
	return value
}

// explanation is what the tests read of the output of explain.
type explanation struct {
	State    string `json:"state"`
	Findings []struct {
		Code, Severity, Hop, Cluster, Detail, Cure string
	} `json:"findings"`
	Exporters []struct {
		Cluster, State, Heartbeat string
		Published                 bool
	} `json:"exporters"`
	Merged struct {
		IPs         []string `json:"ips"`
		AllocatedBy string   `json:"allocatedBy"`
	} `json:"merged"`
	Importers []struct {
		Cluster, State, Programmed, DNS string
		IPs                             []string
	} `json:"importers"`
	Timeline []struct{ Change, Where string } `json:"timeline"`
}

func (s explanation) codes() []string {
	var out []string
	for _, f := range s.Findings {
		out = append(out, f.Code)
	}
	return out
}

// explained waits until the explanation of a service has a finding.
func (term *terminal) explained(ns, name, contexts, code string) {
	term.t.Helper()
	line := fmt.Sprintf("explain %s -n %s --contexts %s", name, ns, contexts)
	harness.Eventually(term.t, code+" in the explanation of "+name, func() error {
		found := decode[explanation](term.t, term.run("%s -o json", line))
		if !slices.Contains(found.codes(), code) {
			return fmt.Errorf("found %v", found.codes())
		}
		return nil
	})
}
