// Package agent assembles seamark-agent: one manager for this cluster, a second connection for the
// broker, and the reconcilers between them.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/failover"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/limits"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/reach"
	"github.com/seamark-dev/seamark/internal/agent/subscription"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/agent/vip"
	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/objects"
)

// workers is how many services a reconciler works on at a time.
const workers = 16

// Options are the agent's settings that are not part of the membership.
type Options struct {
	daemon.Options
	// LeaderElection lets several replicas run of which one is active.
	LeaderElection bool
	// CreateNamespaces creates missing namespaces instead of leaving their services out.
	CreateNamespaces bool
	// FailoverProxy is set if seamark-proxy runs on the nodes and takes over the services of an
	// unreachable cluster. The slices of many services then wait for it.
	FailoverProxy bool
	// BesideSubmariner restores what Submariner's operator removes from the CRDs of the MCS API.
	BesideSubmariner bool
	// ConfigureClusterDNS makes the cluster's DNS forward the clusterset's names to seamark-dns.
	ConfigureClusterDNS bool
	// DataPlane and UseClusterSetIP, when set, win over the membership's.
	DataPlane       v1alpha1.DataPlane
	UseClusterSetIP *bool
	// RenewEvery and LeaseDuration are the times of this member's lease; zero means objects.RenewEvery
	// and objects.LeaseDuration.
	RenewEvery    time.Duration
	LeaseDuration time.Duration
	// PollEvery is how often the connection to the broker and the liveness of members are checked;
	// zero means pollInterval.
	PollEvery time.Duration
	// WithdrawalHold is how long withdrawals are held that no user is known to have asked for; zero
	// means objects.WithdrawalHold.
	WithdrawalHold time.Duration
	// SharedProcess is set where many agents run in one process, as in test/scale. Memory is then not
	// theirs to release.
	SharedProcess bool
	// ProbeListen opens the socket from which beacons are probed, ProbeDial a connection to an
	// endpoint that is tried; nil means those of the process's network.
	ProbeListen func(network string) (net.PacketConn, error)
	ProbeDial   func(ctx context.Context, network, address string) (net.Conn, error)
	// WrapBroker wraps the connection to the broker, to count what is sent. It may be nil.
	WrapBroker transport.WrapperFunc
}

// agent holds what the parts share while they are assembled.
type agent struct {
	Options
	membership   objects.Membership
	stored       objects.Membership // the membership as it is in the Secret
	storedIn     types.UID          // of the Secret
	manager      manager.Manager
	broker       cluster.Cluster
	brokerDirect client.Client
	localDirect  client.Client
	state        *member.State
	clusters     *member.Clusters
	// namespaces are those whose services are read from the broker.
	namespaces       *subscription.Namespaces
	namespacesSynced func() bool
	foreignClaims    *foreignClaims
	usages           *usages
	derived          derivedServices
	serviceRanges    atomic.Pointer[[]netip.Prefix] // those of this cluster's ClusterIPs
	rangesDirty      atomic.Bool                    // ranges changed since imports were compared with them
	nodes            *member.Nodes
	beacons          *member.Beacons // nil in a simulation, which has no sockets
	migration        migration
	sources          *importSources
	sourcesKnown     func() bool // all imports of this cluster have been observed
	prober           *reach.Prober
	failover         *failover.Publisher // nil in a simulation
	failovers        failoverCounter
	// unreachableRestored is set when the unreachable clusters of an earlier leader are known.
	unreachableRestored atomic.Bool
	failedOver          trigger.Portions // services whose endpoints are decided anew because of a failover
	heartbeat           *member.Heartbeat
	leases              *member.LeaseReader
	credential          *member.Credential
	brokerTransport     *member.Transport
	facts               ClusterFacts
	// control runs a reconciler with its sources; writeAll makes the writes of one reconcile. A
	// simulation replaces both.
	control  func(name string, r *telemetry.InstrumentedReconciler, sources []source.Source) error
	writeAll func(writes []func() error) error
	// restartWatches makes all watches of the broker start over; restarted reports whether they have.
	restartWatches func()
	restarted      func() bool
	// watchesLeases reports whether the watch of the own lease is open.
	watchesLeases func() bool
	// fieldIndexer registers the indexes of a cluster's cache; see index.Indexer.
	fieldIndexer func(c cluster.Cluster, allNamespaces bool) client.FieldIndexer
	// restored is set when the broker was restored from a backup, until all services are resynced.
	restored atomic.Bool

	withdrawals    exports.Withdrawals
	heldImports    imports.Withdrawals
	left           sync.Map // from clusters to *withdrawal.Reading[bool]; see hasLeft
	warnExportKind sync.Once

	exportPush, importPush, aggregatePush, identityPush *trigger.Push
	burst                                               trigger.Burst

	metrics        *telemetry.Metrics
	pool           *vip.Pool
	owners         *vip.Owners
	addressesKnown func() bool

	resync        chan struct{} // requests a resync of all services
	statusChanged chan struct{} // requests that the status of this member's Cluster is compared

	// content bounds what the cache of the broker holds of other members.
	content *limits.Content

	kindLost chan struct{} // the API server does not serve a kind of this cluster

	unreadable sync.Map // from kinds of this cluster that could never be listed to the error
}

// Run runs the agent until ctx ends. It returns an error if the kubeconfig does not work. It starts
// even if the broker is unreachable. Where the cluster is no member, or not yet, it waits for an
// invitation. When the cluster was removed from its clusterset, it withdraws and rests until the
// cluster joins again.
func Run(ctx context.Context, o Options) error {
	for {
		err := runMember(ctx, o)
		var removed *member.RemovedError
		var none *member.NotMemberError
		switch {
		case errors.As(err, &removed):
			err = restUntilJoined(ctx, o, removed)
		case errors.As(err, &none):
			err = waitForInvitation(ctx, o, none)
		case errors.Is(err, member.ErrMembershipChanged):
			o.Log.Info(err.Error())
			err = nil
		default:
			return err
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// runMember runs the agent of a member, until ctx ends or the cluster is removed.
func runMember(ctx context.Context, o Options) error {
	a := newAgent(o)
	a.control = a.runController
	a.withdrawals.Kind = &withdrawal.Reading[*metav1.PartialObjectMetadata]{Read: a.readExportKind}
	if err := a.run(ctx, a.readMembership, a.connect, a.readClusterFacts, a.assemble, a.addReachability, a.addProbes, a.addMetrics); err != nil {
		return err
	}
	defer a.metrics.Unregister(ctrlmetrics.Registry)
	if a.BesideSubmariner {
		stop, err := a.startKeepingKinds(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	a.Log.Info("starting", "clusterset", a.membership.ClusterSet, "broker", a.membership.Server)
	return a.manager.Start(ctx)
}

func newAgent(o Options) *agent {
	o.RenewEvery = cmp.Or(o.RenewEvery, objects.RenewEvery)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, objects.LeaseDuration)
	o.PollEvery = cmp.Or(o.PollEvery, pollInterval)
	o.WithdrawalHold = cmp.Or(o.WithdrawalHold, objects.WithdrawalHold)
	a := &agent{
		Options: o, brokerTransport: member.NewTransport(), metrics: telemetry.New(),
		pool: vip.NewPool(uint64(time.Now().UnixNano())), owners: vip.NewOwners(),
		exportPush: &trigger.Push{}, importPush: &trigger.Push{}, aggregatePush: &trigger.Push{}, identityPush: &trigger.Push{},
		resync: make(chan struct{}, 1), statusChanged: make(chan struct{}, 1), kindLost: make(chan struct{}, 1),
		content: limits.NewContent(), prober: &reach.Prober{Listen: o.ProbeListen, Dial: o.ProbeDial},
		failedOver: trigger.Portions{Workers: workers}, namespaces: namespacesOf(o),
	}
	a.restartWatches, a.restarted = a.brokerTransport.RestartWatches, a.brokerTransport.Restarted
	a.watchesLeases = func() bool { return a.brokerTransport.Watches("leases") }
	a.fieldIndexer = func(c cluster.Cluster, allNamespaces bool) client.FieldIndexer {
		return index.Indexer{Cache: c.GetCache(), AllNamespaces: allNamespaces}
	}
	return a
}

func (a *agent) run(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// assemble adds everything between the two API servers to the manager.
func (a *agent) assemble(ctx context.Context) error {
	return a.run(ctx, a.watchClusterSet, a.watchAddresses, a.guardWithdrawals, a.addReconcilers, a.addRunnables)
}

// watchClusterSet sets up what the reconcilers read: indexes, nodes, the clusterset's settings and
// members, and their leases.
func (a *agent) watchClusterSet(ctx context.Context) error {
	if err := index.AddLocal(ctx, a.fieldIndexer(a.manager, false)); err != nil {
		return err
	}
	if err := index.AddBroker(ctx, a.fieldIndexer(a.broker, true)); err != nil {
		return err
	}
	liveness := member.NewLiveness(a.membership.ClusterID)
	a.heartbeat = &member.Heartbeat{
		ClusterID: a.membership.ClusterID, ClusterSet: a.membership.ClusterSet, Namespace: a.membership.Namespace, Holder: a.facts.Holder,
		Client: a.brokerDirect, Log: a.Log.WithName("heartbeat"), RenewEvery: a.RenewEvery, LeaseDuration: a.LeaseDuration,
		NewestLease: func() int64 { return a.state.NewestLease() }, WatchedLease: func() int64 { return a.state.WatchedLease() },
		Watching: a.watchesLeases,
		Demoted:  func() (demoted, known bool) { return liveness.ListedByOthers(), a.clusters.Synced() },
		Stretch:  a.leaseStretch, OnBrokerRestored: a.relistBroker, Elected: a.elected(), LeaderNonce: a.leaderNonce(),
	}
	var err error
	if a.nodes, err = member.WatchNodes(ctx, a.manager.GetCache(), a.requestResync); err != nil {
		return err
	}
	a.state = &member.State{
		Membership: a.membership, Families: a.facts.Families, OldDistribution: a.facts.OldDistribution,
		Liveness: liveness, HoldsClusterID: a.heartbeat.HoldsClusterID,
	}
	a.usages = &usages{
		own: a.membership.ClusterID, importsChanged: a.importPush.Push, exportsChanged: a.exportPush.Push,
		byMember: map[string]*limits.Usage{}, publishing: map[string]struct{}{}, waiting: map[types.NamespacedName]bool{},
	}
	a.clusters, err = member.WatchClusters(
		ctx, a.broker.GetCache(), a.membership.ClusterID, a.clusterChanged, a.rangesChanged, liveness.ObserveDemoted)
	if err != nil {
		return err
	}
	a.brokerTransport.Members = a.clusters.Len
	if err := errors.Join(a.watchUsage(ctx), a.watchDerived(ctx), a.watchNamespaces(ctx), a.watchMigration(ctx)); err != nil {
		return err
	}
	podsSynced, err := a.clusters.WatchPods(ctx, a.manager.GetCache())
	if err != nil {
		return err
	}
	a.state.NodesSynced = func() bool { return a.nodes.Synced() && podsSynced() }
	a.setServiceRanges(a.facts.ServiceCIDRs)
	a.sources = newImportSources(a.membership.ClusterID)
	if a.sourcesKnown, err = member.Watch(ctx, a.manager.GetCache(), &mcsv1beta1.ServiceImport{}, a.sources.observe); err != nil {
		return err
	}
	a.leases = &member.LeaseReader{
		State: a.state, Namespace: a.membership.Namespace, Client: a.brokerDirect, Log: a.Log.WithName("liveness"),
		Members: a.concerned, Clusters: a.clusters.Len, Reached: func(cluster string) bool { return a.reachStates().InAnyFamily(cluster) },
		Every: a.RenewEvery - a.stagger("leases", a.RenewEvery/10), PollEvery: a.PollEvery, Stretch: a.leaseStretch,
	}
	return a.state.WatchBroker(ctx, a.broker.GetCache(), []client.Object{
		&v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}, &mcsv1beta1.ServiceImport{}, &v1alpha1.ClusterSet{}, &v1alpha1.Cluster{},
	}, a.leases.Listed, a.requestResync)
}

// addRunnables adds the tasks that run beside the reconcilers: the heartbeat in all replicas, the
// others on the leader only.
func (a *agent) addRunnables(context.Context) error {
	if a.ConfigureClusterDNS {
		if err := a.manager.Add(manager.RunnableFunc(a.configureClusterDNS)); err != nil {
			return err
		}
	}
	return errors.Join(
		a.manager.Add(manager.RunnableFunc(a.broker.Start)),
		a.manager.Add(a.heartbeat),
		a.manager.Add(a.leases),
		a.manager.Add(manager.RunnableFunc(a.followNamespaces)),
		a.manager.Add(a.foreignClaims),
		a.manager.Add(manager.RunnableFunc(a.pollConnectionAndLiveness)),
		a.manager.Add(manager.RunnableFunc(a.reportStatus)),
		a.manager.Add(manager.RunnableFunc(a.followRanges)),
	)
}

// addProbes adds what the process needs to be run by Kubernetes.
func (a *agent) addProbes(context.Context) error {
	if !a.SharedProcess {
		if err := a.manager.Add(manager.RunnableFunc(a.manageMemory)); err != nil {
			return err
		}
	}
	return errors.Join(
		a.manager.AddHealthzCheck("process", healthz.Ping),
		a.manager.AddReadyzCheck("caches", a.cachesSynced),
	)
}

// ClusterFacts are what an agent reads once about its own cluster.
type ClusterFacts struct {
	// Holder is the uid that identifies the cluster among all others.
	Holder string
	// Families are the address families that its Services can have.
	Families []corev1.IPFamily
	// ServiceCIDRs are the ranges of its ClusterIPs.
	ServiceCIDRs []string
	// OldDistribution is true for an API server before 1.34; see imports.Settings.
	OldDistribution bool
}

func (a *agent) readClusterFacts(ctx context.Context) error {
	system := &corev1.Namespace{}
	if err := a.localDirect.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	a.facts.Holder = string(system.UID)
	var err error
	if a.facts.Families, err = objects.Families(ctx, a.localDirect); err != nil {
		return err
	}
	a.facts.ServiceCIDRs = objects.ServiceCIDRs(ctx, a.localDirect)
	versions, err := discovery.NewDiscoveryClientForConfig(a.Local)
	if err != nil {
		return fmt.Errorf("connect to this cluster: %w", err)
	}
	a.facts.OldDistribution, err = lacksPreferSameNode(versions)
	return err
}

// lacksPreferSameNode reports whether an API server is older than 1.34. Such a server drops the
// traffic distributions that it does not know.
func lacksPreferSameNode(c discovery.ServerVersionInterface) (bool, error) {
	info, err := c.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("read the version of this cluster's API server: %w", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	return err == nil && info.Major == "1" && minor < 34, nil
}
