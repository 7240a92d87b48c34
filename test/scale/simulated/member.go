// Package simulated has members of a clusterset of which hundreds run in one process. Each is
// seamark-agent as it is (agent.Run): with its own credential and its own connection to a real
// broker, the same caches, watches, writers, heartbeat and retries. Only its own cluster is
// simulated, by an API server in memory (package memapi). There are no pods. The beacons of a
// cluster answer in memory, too.
package simulated

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/memapi"
)

// Broker is where simulated members join.
type Broker struct {
	// Admin has an admin's rights.
	Admin client.Client
	// Config is how members reach the API server. Its credentials are not used.
	Config *rest.Config
	// Traffic counts the requests of all members.
	Traffic *Traffic
	// Log receives the logs of all agents.
	Log slog.Handler
	// RenewEvery and LeaseDuration are the times of all leases; zero means those of production.
	RenewEvery, LeaseDuration time.Duration
	// DataPlane of all members; empty means the default.
	DataPlane v1alpha1.DataPlane
	// WithoutBeacons is below which number members have no beacons. Agents of other processes that
	// import from them must not probe addresses that exist in this process only.
	WithoutBeacons int

	network network
}

// Member is a simulated cluster with its agent.
type Member struct {
	ID string
	// Client reads and writes the simulated cluster.
	Client client.Client
	// Server is its API server.
	Server *memapi.Server

	options agent.Options
	pods    netip.Prefix
	lost    atomic.Bool // its requests do not reach the broker, and its beacons do not answer

	identity atomic.Pointer[wire.Identity] // of its beacons; nil before the first probe
	heard    sync.Map                      // addresses of beacons that answered it

	mu      sync.Mutex
	stop    func()
	running bool
}

// pollEvery is how often a simulated agent looks at its own state, which its broker does not
// notice. It is longer than in production: a thousand share the broker's cores.
const pollEvery = time.Second

// services is the range of the ClusterIPs of all simulated clusters. Clusters may share it: no
// endpoint lies in it.
var services = netip.MustParsePrefix("172.24.0.0/14")

// MaxMembers is how many members can have a range of pods of their own.
const MaxMembers = 4096

// podRange returns the range of the pods of the member with a number: 4,096 addresses.
func podRange(number int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(number >> 4), byte(number << 4), 0}), 20)
}

// Join invites a cluster as `seamark broker invite` does and stores the membership in a new
// simulated cluster. The agent is not started. Each number is used once.
func (b *Broker) Join(ctx context.Context, number int) (*Member, error) {
	id := fmt.Sprintf("sim-%04d", number)
	invited, err := brokeradmin.Invite(ctx, b.Admin, id, brokeradmin.InviteOptions{Server: b.Config.Host, CAData: b.ownCA(id)})
	if err != nil {
		return nil, err
	}
	invited.Membership.DataPlane = b.DataPlane
	m := &Member{ID: id, Server: memapi.New(id, services), pods: podRange(number)}
	if m.Client, err = client.New(m.Server.Config(), client.Options{Scheme: scheme(), Mapper: mapper()}); err != nil {
		return nil, err
	}
	m.options = agent.Options{
		Options:    daemon.Options{Local: m.Server.Config(), Log: logr.Discard(), MetricsAddress: "0", ProbeAddress: "0"},
		RenewEvery: b.RenewEvery, LeaseDuration: b.LeaseDuration, SharedProcess: true,
		PollEvery: pollEvery, ProbeListen: b.network.listenFor(m), ProbeDial: b.network.dial,
		WrapBroker: func(next http.RoundTripper) http.RoundTripper { return &countingTripper{b.Traffic, &m.lost, next} },
	}
	if b.Log != nil {
		m.options.Log = logr.FromSlogHandler(b.Log).WithValues("cluster", id)
	}
	objects := m.cluster(invited.Membership)
	if number >= b.WithoutBeacons {
		b.network.add(m)
		objects = append(objects, m.beaconSlice())
	}
	return m, m.create(ctx, objects...)
}

// ownCA returns the CA of the broker as bytes that no other member has. Clients with the same CA in
// one process share their connections, but every member has its own.
func (b *Broker) ownCA(id string) []byte {
	return fmt.Appendf(nil, "# %s\n%s", id, b.Config.CAData)
}

// cluster returns the objects that a cluster has after it joined.
func (m *Member) cluster(membership objects.Membership) []client.Object {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	address := m.pods.Addr().Next().String()
	return []client.Object{
		&corev1.Namespace{ObjectMeta: named(metav1.NamespaceSystem)},
		&corev1.Namespace{ObjectMeta: named(objects.AgentNamespace)},
		&networkingv1.ServiceCIDR{ObjectMeta: named("kubernetes"), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{services.String()}}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("serviceexports.multicluster.x-k8s.io")},
		&corev1.Node{
			ObjectMeta: named("node"),
			Spec:       corev1.NodeSpec{PodCIDR: m.pods.String(), PodCIDRs: []string{m.pods.String()}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
		},
		membership.Secret(),
	}
}

func (m *Member) create(ctx context.Context, all ...client.Object) error {
	for _, obj := range all {
		if err := m.Client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %T %s in %s: %w", obj, client.ObjectKeyFromObject(obj), m.ID, err)
		}
	}
	return nil
}

// Start starts the agent. Starting a running agent does nothing.
func (m *Member) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		return
	}
	m.lost.Store(false)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := agent.Run(ctx, m.options); err != nil {
			m.options.Log.Error(err, "the agent ended")
		}
	}()
	m.running, m.stop = true, func() { cancel(); <-done }
}

// Lose ends the agent as the loss of its cluster does: it cannot release its lease. Lose waits for
// the agent.
func (m *Member) Lose() {
	m.lost.Store(true)
	m.Stop()
}

// Stop ends the agent and waits for it. The cluster stays a member.
func (m *Member) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		m.stop()
		m.running = false
	}
}

// Running reports whether the agent runs.
func (m *Member) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// PodIP returns the address of a pod of the cluster. There are about 4,000.
func (m *Member) PodIP(number int) string {
	ip := m.pods.Addr().As4()
	number += 16 // the first addresses belong to the node
	ip[2] += byte(number>>8) & 15
	ip[3] = byte(number)
	return netip.AddrFrom4(ip).String()
}

var (
	scheme = sync.OnceValue(harness.Scheme)
	mapper = sync.OnceValue(newMapper)
)

// newMapper returns the kinds of a simulated cluster, which serves no discovery.
func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for gvk, scope := range memapi.Kinds() {
		m.Add(gvk, scope)
	}
	return m
}
