// Package operate_test runs the commands with which people look after a clusterset, on real clustersets with agents at work: arguments in, text
// and exit code out.
package operate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli"
	"github.com/seamark-dev/seamark/internal/dns/server"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // libraries; what the command says is what is tested
	server.Configure()
	dnsserver.Quiet = true
	harness.Main(m)
}

// bed is a user at a terminal with the contexts hub, east and, where there is one, west of a clusterset whose agents run.
type bed struct {
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

// newBed gives the test the clusterset that all tests share; each uses namespaces of its own and breaks nothing but services.
func newBed(t testing.TB) *bed {
	t.Helper()
	cps := harness.Clusters(t, 3)
	sharedOnce.Do(func() { shared, errShared = startFleet(cps, fleet.Options{}) })
	if errShared != nil {
		t.Fatal(errShared)
	}
	return bedOn(t, shared)
}

// freshBed gives the test a clusterset that it may break.
func freshBed(t testing.TB) *bed {
	t.Helper()
	f, err := startFleet(harness.Fresh(t, 3), fleet.Options{DataPlanes: map[string]v1alpha1.DataPlane{"west": v1alpha1.DataPlaneNone}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return bedOn(t, f)
}

func startFleet(cps []*controlplane.ControlPlane, o fleet.Options) (*fleet.Fleet, error) {
	f, err := fleet.New(context.Background(), cps[0], cps[1:], o)
	if err != nil {
		return nil, err
	}
	return f, f.Start()
}

func bedOn(t testing.TB, f *fleet.Fleet) *bed {
	t.Helper()
	b := &bed{t: t, fleet: f, east: f.Members[0], kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	planes := map[string]*controlplane.ControlPlane{"hub": f.Broker, "east": b.east.CP}
	if len(f.Members) > 1 {
		b.west = f.Members[1]
		planes["west"] = b.west.CP
	}
	config := clientcmdapi.NewConfig()
	for name, cp := range planes {
		rc := cp.Config()
		config.Clusters[name] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	}
	config.CurrentContext = "east"
	if err := clientcmd.WriteToFile(*config, b.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return b
}

// namespace makes a namespace with a new name.
func (b *bed) namespace(in ...*fleet.Member) string {
	b.t.Helper()
	return fleet.NewNamespace(b.t, in...)
}

// outcome is what a command left on the screen.
type outcome struct {
	code     int
	out, err string
}

// run runs a command line given as words in one string: no argument in these tests has a space.
func (b *bed) run(format string, args ...any) outcome {
	return b.runIn(context.Background(), fmt.Sprintf(format, args...))
}

func (b *bed) runIn(ctx context.Context, line string) outcome {
	var out, errOut bytes.Buffer
	code := cli.Run(ctx, append(strings.Fields(line), "--kubeconfig", b.kubeconfig), strings.NewReader(""), &out, &errOut)
	return outcome{code, out.String(), errOut.String()}
}

// expect runs a command that has to end with a code and say all the parts.
func (b *bed) expect(code int, line string, parts ...string) outcome {
	b.t.Helper()
	o := b.run("%s", line)
	if problem := o.lacks(code, parts...); problem != nil {
		b.t.Errorf("seamark %s: %v", line, problem)
	}
	return o
}

// lacks tells what an outcome should be and is not.
func (o outcome) lacks(code int, parts ...string) error {
	if o.code != code {
		return fmt.Errorf("exit %d, want %d\n%s%s", o.code, code, o.out, o.err)
	}
	for _, part := range parts {
		if !strings.Contains(o.out+o.err, part) {
			return fmt.Errorf("it does not say %q:\n%s%s", part, o.out, o.err)
		}
	}
	return nil
}

// eventually repeats a command until it succeeds and says all the parts.
func (b *bed) eventually(line string, parts ...string) outcome {
	b.t.Helper()
	var o outcome
	harness.Eventually(b.t, "seamark "+line, func() error {
		o = b.run("%s", line)
		return o.lacks(0, parts...)
	})
	return o
}

// decode reads the JSON that a command printed.
func decode[T any](t testing.TB, o outcome) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(o.out), &value); err != nil {
		t.Fatalf("not JSON: %v\n%s%s", err, o.out, o.err)
	}
	return value
}

// story is what the tests read of an explanation.
type story struct {
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

func (s story) codes() []string {
	var out []string
	for _, f := range s.Findings {
		out = append(out, f.Code)
	}
	return out
}

// explained waits until the explanation of a service has a finding, and returns it as people see it.
func (b *bed) explained(ns, name, contexts, code string) (people outcome) {
	b.t.Helper()
	line := fmt.Sprintf("explain %s -n %s --contexts %s", name, ns, contexts)
	harness.Eventually(b.t, code+" in the story of "+name, func() error {
		found := decode[story](b.t, b.run("%s -o json", line))
		if !slices.Contains(found.codes(), code) {
			return fmt.Errorf("found %v", found.codes())
		}
		return nil
	})
	return b.run("%s", line)
}
