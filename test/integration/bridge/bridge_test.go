// Package bridge_test runs clusters with Submariner Lighthouse only and clusters with Seamark only
// beside each other, with seamark-bridge between their brokers: real agents of both on real API
// servers.
package bridge_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

func TestMain(m *testing.M) {
	dnsprocess.RunIfChild()
	harness.Main(m)
}

// mixed is a clusterset of which some clusters run Lighthouse and the others Seamark.
type mixed struct {
	t *testing.T
	// lighthouseHost has Lighthouse's broker and runs the bridge; seamarkHost has Seamark's broker.
	lighthouseHost, seamarkHost *controlplane.ControlPlane
	lighthouse                  *lighthouse.Set
	fleet                       *fleet.Fleet
	local                       client.Client // of lighthouseHost

	// emptySeamark restores Seamark's broker to its state before the first export.
	emptySeamark func(context.Context) error

	args    []string
	process *exec.Cmd
	logged  int64 // what earlier processes of the bridge have logged
}

// newMixed sets up both clustersets. It starts neither agents nor the bridge.
func newMixed(
	t *testing.T, lighthouseHost, seamarkHost *controlplane.ControlPlane, lighthouseClusters, seamarkClusters map[string]*controlplane.ControlPlane,
) *mixed {
	t.Helper()
	m := &mixed{t: t, lighthouseHost: lighthouseHost, seamarkHost: seamarkHost}
	ids := slices.Sorted(maps.Keys(lighthouseClusters))
	var cps []*controlplane.ControlPlane
	for _, id := range ids {
		cps = append(cps, lighthouseClusters[id])
	}
	m.lighthouse = lighthouse.New(t, lighthouseHost, cps, ids...)
	classic := false
	options := fleet.Options{EnableClusterSetIP: &classic}
	var members []*controlplane.ControlPlane
	for _, id := range slices.Sorted(maps.Keys(seamarkClusters)) {
		options.IDs, members = append(options.IDs, id), append(members, seamarkClusters[id])
	}
	var err error
	if m.fleet, err = fleet.New(t.Context(), seamarkHost, members, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.fleet.Stop)
	m.local = harness.Client(t, lighthouseHost)
	m.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: objects.AgentNamespace}})
	m.create(secret(objects.BridgeLighthouseSecret, lighthouse.BrokerCredential(t, lighthouseHost, "cluster-bridge")))
	for _, id := range ids {
		m.invite(id)
	}
	m.args = []string{"--lighthouse-clusters", strings.Join(ids, ","), "--seamark-clusters", strings.Join(options.IDs, ",")}
	t.Cleanup(m.killBridge)
	return m
}

func (m *mixed) create(obj client.Object) {
	m.t.Helper()
	if err := m.local.Create(m.t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
		m.t.Fatal(err)
	}
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: name}, Data: data}
}

// invite makes a Lighthouse cluster a member of Seamark's clusterset, for the bridge.
func (m *mixed) invite(id string) {
	m.t.Helper()
	cfg := m.seamarkHost.Config()
	invited, err := brokeradmin.Invite(m.t.Context(), m.fleet.Admin, id, brokeradmin.InviteOptions{Server: cfg.Host, CAData: cfg.CAData})
	if err != nil {
		m.t.Fatal(err)
	}
	m.create(secret(objects.BridgeInvitation(id), invited.Membership.Invitation().Data))
	m.create(secret(objects.BridgeMembership(id), nil))
}

var bridge struct {
	once sync.Once
	path string
	err  error
}

// bridgeBinary builds seamark-bridge once and returns its path.
func bridgeBinary(t *testing.T) string {
	t.Helper()
	bridge.once.Do(func() {
		bridge.path = filepath.Join(harness.Dir(t), "seamark-bridge")
		build := exec.Command("go", "build", "-o", bridge.path, "github.com/seamark-dev/seamark/cmd/seamark-bridge")
		if out, err := build.CombinedOutput(); err != nil {
			bridge.err = fmt.Errorf("build seamark-bridge: %w\n%s", err, out)
		}
	})
	if bridge.err != nil {
		t.Fatal(bridge.err)
	}
	return bridge.path
}

// startBridge starts the bridge as a process, with more arguments. Its log is beside those of the
// control plane.
func (m *mixed) startBridge(args ...string) {
	m.t.Helper()
	path := bridgeBinary(m.t)
	log, err := os.OpenFile(m.bridgeLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil {
		m.logged = info.Size()
	}
	m.process = exec.Command(path, slices.Concat([]string{
		"--kubeconfig", m.lighthouseHost.Kubeconfig(), "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--renew-every=1s", "--lease-duration=5s", "--log-level=debug",
	}, m.args, args)...)
	m.process.Stdout, m.process.Stderr = log, log
	if err := controlplane.StartChild(m.process); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mixed) bridgeLog() string {
	return filepath.Join(filepath.Dir(m.lighthouseHost.Logs()[0]), "bridge.log")
}

// killBridge kills the bridge (SIGKILL). Killing a stopped one does nothing.
func (m *mixed) killBridge() {
	if m.process != nil {
		_ = m.process.Process.Kill()
		_ = m.process.Wait()
		m.process = nil
	}
}

// start starts all agents and the bridge.
func (m *mixed) start() {
	m.t.Helper()
	m.lighthouse.Start(m.t)
	if err := m.fleet.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.startBridge()
}

// agent returns Lighthouse's agent of a cluster, and west the only member with an agent of Seamark.
func (m *mixed) agent(id string) *lighthouse.Agent {
	i := slices.IndexFunc(m.lighthouse.Agents, func(a *lighthouse.Agent) bool { return a.ID == id })
	return m.lighthouse.Agents[i]
}

func (m *mixed) west() *fleet.Member { return m.fleet.Members[0] }

// exportInLighthouse creates a Service with a slice and a ServiceExport in east.
func (m *mixed) exportInLighthouse(t *testing.T, svc *corev1.Service, addresses ...string) *corev1.Service {
	t.Helper()
	return exportFrom(t, m.agent("east"), svc, addresses...)
}

func exportFrom(t *testing.T, a *lighthouse.Agent, svc *corev1.Service, addresses ...string) *corev1.Service {
	t.Helper()
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	for _, obj := range []client.Object{svc, fleet.NewSlice(svc, "abc", addresses...), export} {
		if err := a.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	return svc
}

// exportInSeamark creates a Service with a slice and a ServiceExport in west.
func (m *mixed) exportInSeamark(t *testing.T, svc *corev1.Service, addresses ...string) *corev1.Service {
	t.Helper()
	m.west().Serve(t, svc, addresses...)
	m.west().Export(t, svc.Namespace, svc.Name)
	return svc
}

// awaitLighthouse waits until Lighthouse's DNS server of east may answer with exactly these
// addresses; without any, until there is no such name.
func (m *mixed) awaitLighthouse(t *testing.T, ns, name string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	harness.Eventually(t, fmt.Sprintf("%s/%s in east, which runs Lighthouse", ns, name), func() error {
		got, found, err := m.agent("east").Resolve(t.Context(), ns, name)
		if err != nil {
			return err
		}
		slices.Sort(got)
		if found != (len(want) > 0) || !slices.Equal(got, want) {
			return fmt.Errorf("it resolves to %v (found: %v), want %v", got, found, want)
		}
		return nil
	})
}

// lighthouseObjects returns what Lighthouse's broker has, by kind and name, with the uid and the
// resource version.
func (m *mixed) lighthouseObjects(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	imports, endpoints := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	for _, list := range []client.ObjectList{imports, endpoints} {
		if err := m.local.List(t.Context(), list, client.InNamespace(lighthouse.BrokerNamespace)); err != nil {
			t.Fatal(err)
		}
	}
	for _, si := range imports.Items {
		out["ServiceImport "+si.Name] = string(si.UID) + " " + si.ResourceVersion
	}
	for _, s := range endpoints.Items {
		out["EndpointSlice "+s.Name] = string(s.UID) + " " + s.ResourceVersion
	}
	return out
}

// seamarkObjects returns the same of the objects of Lighthouse's clusters on Seamark's broker, and
// of aggregates.
func (m *mixed) seamarkObjects(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for kind, list := range seamarkLists() {
		if err := m.fleet.Admin.List(t.Context(), list, client.InNamespace(objects.DefaultNamespace)); err != nil {
			t.Fatal(err)
		}
		eachItem(list, func(obj client.Object) {
			out[kind+" "+obj.GetName()] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
		})
	}
	return out
}

// awaitQuiet waits until neither broker has changed for two seconds, and returns what they have.
func (m *mixed) awaitQuiet(t *testing.T) map[string]string {
	t.Helper()
	read := func() map[string]string {
		all := m.lighthouseObjects(t)
		for name, version := range m.seamarkObjects(t) {
			all["Seamark: "+name] = version
		}
		return all
	}
	last, since := read(), time.Now()
	harness.Eventually(t, "both brokers are quiet", func() error {
		now := read()
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*time.Second {
			return fmt.Errorf("they changed %s ago", quiet.Round(time.Millisecond))
		}
		return nil
	})
	return last
}

// resolve asks a DNS server for the addresses of a service.
func resolve(ctx context.Context, server string, service types.NamespacedName) (addresses []string, err error) {
	query := new(dns.Msg)
	query.SetQuestion(fmt.Sprintf("%s.%s.svc.clusterset.local.", service.Name, service.Namespace), dns.TypeA)
	reply, _, err := (&dns.Client{Timeout: 2 * time.Second}).ExchangeContext(ctx, query, server)
	if err != nil {
		return nil, err
	}
	for _, rr := range reply.Answer {
		if a, ok := rr.(*dns.A); ok {
			addresses = append(addresses, a.A.String())
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}
