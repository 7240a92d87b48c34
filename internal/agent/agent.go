// Package agent puts the parts of seamark-agent together: one manager for this cluster, a second connection for the broker,
// and the reconcilers between them.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/agent/vip"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Options are the agent's settings that are not part of the membership.
type Options struct {
	daemon.Options
	// LeaderElection lets several replicas run with one at work.
	LeaderElection bool
	// CreateNamespaces makes missing namespaces rather than leaving their services out.
	CreateNamespaces bool
	// RenewEvery and LeaseDuration are the heartbeat's times; zero means member.RenewEvery and member.LeaseDuration.
	RenewEvery    time.Duration
	LeaseDuration time.Duration
}

// agent is what the parts share while they are put together.
type agent struct {
	Options
	membership   objects.Membership
	manager      manager.Manager
	broker       cluster.Cluster
	brokerDirect client.Client
	localDirect  client.Client
	state        *member.State
	nodes        *member.Nodes
	heartbeat    *member.Heartbeat
	line         *member.Transport

	localWriter, brokerWriter       *apply.Writer
	exports, importsPush, aggregate *trigger.Push
	rush                            trigger.Burst

	metrics        *telemetry.Metrics
	pool           *vip.Pool
	blocksKnown    atomic.Bool
	addressesKnown func() bool
	hunger         *hunger

	again chan struct{} // asks the attendant to look at everything again
}

// Run works until ctx ends. It returns an error when it cannot start: a cluster that is no member, or a kubeconfig that does
// not work. A broker that is away is no reason not to start.
func Run(ctx context.Context, o Options) error {
	o.RenewEvery = orDefault(o.RenewEvery, objects.RenewEvery)
	o.LeaseDuration = orDefault(o.LeaseDuration, objects.LeaseDuration)
	a := &agent{
		Options: o, line: member.NewTransport(), exports: &trigger.Push{}, importsPush: &trigger.Push{}, aggregate: &trigger.Push{},
		again: make(chan struct{}, 1), pool: vip.NewPool(), metrics: telemetry.New(),
	}
	a.hunger = &hunger{why: map[types.NamespacedName]error{}, changed: a.exports.Push}
	for _, step := range []func(context.Context) error{a.readMembership, a.connect, a.follow, a.followAddresses, a.addReconcilers, a.addRunnables, a.addMetrics} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	a.Log.Info("starting", "clusterset", a.membership.ClusterSet, "broker", a.membership.Server)
	return a.manager.Start(ctx)
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

// readMembership finds out who this cluster is.
func (a *agent) readMembership(ctx context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	a.Local = rest.CopyConfig(a.Local)
	a.Local.QPS = -1 // the API server's own fairness limits us
	a.Local.Wrap(member.NewTransport().Wrap)
	if a.localDirect, err = client.New(a.Local, client.Options{Scheme: scheme, Mapper: newMapper()}); err != nil {
		return fmt.Errorf("reach this cluster: %w", err)
	}
	secret := &corev1.Secret{}
	err = a.localDirect.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret)
	if apierrors.IsNotFound(err) {
		secret = nil
	} else if err != nil {
		return fmt.Errorf("read secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	a.membership, err = objects.MembershipFrom(secret)
	a.ReportClusterID(a.membership.ClusterID)
	return err
}

// connect builds the manager of this cluster and the connection to the broker.
func (a *agent) connect(context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	a.manager, err = ctrl.NewManager(a.Local, ctrl.Options{
		Scheme:         scheme,
		MapperProvider: staticMapper,
		Cache:          localCache(),
		Logger:         a.Log,
		Metrics: metricsserver.Options{
			BindAddress: a.MetricsAddress, ExtraHandlers: map[string]http.Handler{objects.WaitingPath: &a.metrics.Waiting},
		},
		HealthProbeBindAddress:        a.ProbeAddress,
		PprofBindAddress:              a.PprofAddress,
		LeaderElection:                a.LeaderElection,
		LeaderElectionID:              "seamark-agent",
		LeaderElectionNamespace:       objects.AgentNamespace,
		LeaderElectionReleaseOnCancel: true,
		Controller: config.Controller{
			MaxConcurrentReconciles: 16,
			SkipNameValidation:      ptr.To(true), // several agents may run in one process: the tests' do
		},
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	credential := member.NewCredential(a.membership.Token)
	cfg := credential.Config(a.membership)
	cfg.Wrap(a.line.Wrap)
	a.broker, err = cluster.New(cfg, func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.Logger = scheme, staticMapper, a.Log
		o.Cache = brokerCache(a.membership.Namespace, a.membership.ClusterID)
	})
	if err != nil {
		return fmt.Errorf("set up the connection to the broker: %w", err)
	}
	if a.brokerDirect, err = client.New(cfg, client.Options{Scheme: scheme, Mapper: newMapper()}); err != nil {
		return fmt.Errorf("set up the connection to the broker: %w", err)
	}
	a.localWriter, a.brokerWriter = apply.NewWriter(a.manager.GetClient()), apply.NewWriter(a.broker.GetClient())
	renewal := &member.Renewal{
		Credential: credential, Membership: a.membership, Local: a.localDirect, Broker: a.brokerDirect, Log: a.Log.WithName("credential"),
	}
	return errors.Join(a.manager.Add(renewal), a.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return renewal.Follow(ctx, a.manager.GetCache())
	})))
}

// follow sets up what the reconcilers read: indexes, nodes, the clusterset's settings, everybody's leases.
func (a *agent) follow(ctx context.Context) error {
	if err := index.AddLocal(ctx, a.manager.GetFieldIndexer()); err != nil {
		return err
	}
	if err := index.AddBroker(ctx, a.broker.GetFieldIndexer()); err != nil {
		return err
	}
	holder, families, err := a.inspect(ctx)
	if err != nil {
		return err
	}
	versions, err := discovery.NewDiscoveryClientForConfig(a.Local)
	if err != nil {
		return fmt.Errorf("reach this cluster: %w", err)
	}
	old, err := beforeSameNode(versions)
	if err != nil {
		return err
	}
	a.heartbeat = &member.Heartbeat{
		ClusterID: a.membership.ClusterID, Namespace: a.membership.Namespace, Holder: holder,
		Client: a.brokerDirect, Log: a.Log.WithName("heartbeat"), Every: a.RenewEvery, Duration: a.LeaseDuration, OnBrokerRestored: a.line.RestartWatches,
	}
	if a.nodes, err = member.WatchNodes(ctx, a.manager.GetCache(), a.askToLookAgain); err != nil {
		return err
	}
	a.state = &member.State{
		Membership: a.membership, Families: families, OldDistribution: old, Liveness: member.NewLiveness(a.membership.ClusterID),
		Held: a.heartbeat.Held, NodesKnown: a.nodes.Synced,
	}
	return a.state.Follow(ctx, a.broker.GetCache(),
		[]client.Object{&v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}, &mcsv1beta1.ServiceImport{}, &v1alpha1.ClusterSet{}, &v1alpha1.Cluster{}},
		a.askToLookAgain)
}

// addRunnables adds what runs beside the reconcilers, on the leader only.
func (a *agent) addRunnables(context.Context) error {
	return errors.Join(
		a.manager.Add(manager.RunnableFunc(a.broker.Start)),
		a.manager.Add(a.heartbeat),
		a.manager.Add(manager.RunnableFunc(a.attend)),
		a.manager.Add(manager.RunnableFunc(a.tellStatus)),
		a.manager.Add(manager.RunnableFunc(a.tidy)),
		a.manager.AddHealthzCheck("process", healthz.Ping),
		a.manager.AddReadyzCheck("caches", a.cachesSynced),
	)
}

// inspect asks this cluster what it is: the uid that tells it from every other, and its address families.
func (a *agent) inspect(ctx context.Context) (holder string, families []corev1.IPFamily, err error) {
	system := &corev1.Namespace{}
	if err := a.localDirect.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", nil, fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	families, err = objects.Families(ctx, a.localDirect)
	return string(system.UID), families, err
}
