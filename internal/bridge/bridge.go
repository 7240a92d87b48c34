package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/objects"
)

// workers is how many services the bridge works on at a time.
const workers = 8

// maxIDLength is how long a cluster id may be: it is the value of a label.
const maxIDLength = 63

// Options are the settings of a bridge.
type Options struct {
	daemon.Options
	// LighthouseClusters run Lighthouse only, SeamarkClusters Seamark only. A cluster that runs both
	// is in neither list.
	LighthouseClusters, SeamarkClusters []string
	// TakeOver are the Seamark clusters whose objects on Lighthouse's broker become the bridge's,
	// because Lighthouse's agent there has ended.
	TakeOver []string
	// LeaderElection lets several replicas run of which one is active.
	LeaderElection bool
	// RenewEvery and LeaseDuration are the times of the leases; zero means objects.RenewEvery and
	// leaseDuration.
	RenewEvery, LeaseDuration time.Duration
	// WithdrawalHold is how long withdrawals are held that no user is known to have asked for; zero
	// means objects.WithdrawalHold.
	WithdrawalHold time.Duration
	// WrapSeamark and WrapLighthouse wrap the connections to the brokers, to count what is sent. They
	// may be nil.
	WrapSeamark, WrapLighthouse transport.WrapperFunc
}

// Validate returns an error that says which of the lists of clusters is wrong, and what to do.
func (o Options) Validate() error {
	for _, l := range []struct {
		flag string
		ids  []string
	}{{"--lighthouse-clusters", o.LighthouseClusters}, {"--seamark-clusters", o.SeamarkClusters}} {
		if len(l.ids) == 0 {
			return fmt.Errorf("%s is empty: name the clusters that the bridge is for", l.flag)
		}
		for i, id := range l.ids {
			if problems := validation.IsDNS1123Subdomain(id); len(problems) > 0 || len(id) > maxIDLength {
				return fmt.Errorf("%s: %q cannot be a cluster id of at most %d characters: %s", l.flag, id, maxIDLength, strings.Join(problems, ", "))
			}
			if slices.Contains(l.ids[:i], id) {
				return fmt.Errorf("%s names cluster %s twice", l.flag, id)
			}
		}
	}
	for _, id := range o.LighthouseClusters {
		if slices.Contains(o.SeamarkClusters, id) {
			return fmt.Errorf("cluster %s is in --lighthouse-clusters and in --seamark-clusters: a cluster that runs both needs no bridge, "+
				"remove it from both", id)
		}
	}
	for _, id := range o.TakeOver {
		if !slices.Contains(o.SeamarkClusters, id) {
			return fmt.Errorf("--take-over names cluster %s, which is not in --seamark-clusters", id)
		}
	}
	return nil
}

// bridge holds what the parts share while they are assembled.
type bridge struct {
	Options
	scheme  *runtime.Scheme
	manager manager.Manager
	local   client.Client // uncached
	holder  string

	members             []*bridged // in the order of their ids
	seamark, lighthouse cache.Cache
	seamarkTransport    *member.Transport
	lighthouseTransport *member.Transport
	lighthouseClient    client.Client // reads from the cache
	lighthouseNamespace string

	reconciler *reconciler
	resyncs    []func(...types.NamespacedName)
}

// Run runs the bridge until ctx ends. It returns an error if its configuration is wrong, or if a
// cluster that it writes for was removed from the clusterset.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	o.RenewEvery, o.LeaseDuration = cmp.Or(o.RenewEvery, objects.RenewEvery), cmp.Or(o.LeaseDuration, leaseDuration)
	o.WithdrawalHold = cmp.Or(o.WithdrawalHold, objects.WithdrawalHold)
	slices.Sort(o.LighthouseClusters)
	slices.Sort(o.SeamarkClusters)
	b := &bridge{Options: o, seamarkTransport: member.NewTransport(), lighthouseTransport: member.NewTransport()}
	for _, step := range []func(context.Context) error{
		b.connectLocal, b.readHolder, b.connectSeamark, b.connectLighthouse, b.addReconcilers, b.addRunnables,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	b.Log.Info("starting", "lighthouseClusters", o.LighthouseClusters, "seamarkClusters", o.SeamarkClusters)
	return b.manager.Start(ctx)
}

// connectLocal creates the manager of the cluster in which the bridge runs. It keeps there what it
// must remember, and reads nothing else.
func (b *bridge) connectLocal(context.Context) (err error) {
	if b.scheme, err = newScheme(); err != nil {
		return err
	}
	b.Local = rest.CopyConfig(b.Local)
	b.Local.QPS = -1 // the API server's priority and fairness limits the bridge
	b.Local.Wrap(member.NewTransport().Wrap)
	if b.local, err = client.New(b.Local, client.Options{Scheme: b.scheme, Mapper: newMapper()}); err != nil {
		return fmt.Errorf("connect to this cluster: %w", err)
	}
	b.manager, err = ctrl.NewManager(b.Local, ctrl.Options{
		Scheme: b.scheme, MapperProvider: staticMapper, Logger: b.Log,
		Metrics:                metricsserver.Options{BindAddress: b.MetricsAddress},
		HealthProbeBindAddress: b.ProbeAddress, PprofBindAddress: b.PprofAddress,
		LeaderElection: b.LeaderElection, LeaderElectionID: objects.BridgeName, LeaderElectionNamespace: objects.AgentNamespace,
		LeaderElectionReleaseOnCancel: true,
		Controller: config.Controller{
			MaxConcurrentReconciles: workers,
			SkipNameValidation:      ptr.To(true), // several bridges run in one process in tests
		},
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	return nil
}

// connectSeamark takes up the memberships and connects to Seamark's broker. All members may read
// all of it, so one credential is enough to read.
func (b *bridge) connectSeamark(ctx context.Context) error {
	for _, id := range b.LighthouseClusters {
		m, err := b.takeUp(ctx, id)
		if err != nil {
			return err
		}
		if len(b.members) > 0 && !sameBroker(b.members[0].membership, m) {
			return fmt.Errorf("the invitations of clusters %s and %s are for different brokers: invite both to one clusterset",
				b.members[0].membership.ClusterID, id)
		}
		c, err := b.join(m)
		if err != nil {
			return err
		}
		b.members = append(b.members, c)
	}
	reader := b.members[0]
	cfg := b.memberConfig(reader)
	cfg.Wrap(b.seamarkTransport.Wrap)
	var err error
	if b.seamark, err = cache.New(cfg, b.seamarkCache(reader.membership.Namespace)); err != nil {
		return fmt.Errorf("set up the connection to Seamark's broker: %w", err)
	}
	for _, c := range b.members {
		cfg := b.memberConfig(c)
		cfg.Wrap(member.NewTransport().Wrap)
		if err := c.connect(cfg, b.scheme, b.seamark); err != nil {
			return err
		}
	}
	return nil
}

// memberConfig returns a client configuration for Seamark's broker with a member's credential.
func (b *bridge) memberConfig(c *bridged) *rest.Config {
	cfg := c.credential.Config(c.membership)
	cfg.UserAgent = "seamark-bridge/" + c.membership.ClusterID
	cfg.Wrap(b.WrapSeamark)
	return cfg
}

func sameBroker(a, b objects.Membership) bool {
	return a.Server == b.Server && a.Namespace == b.Namespace && a.ClusterSet == b.ClusterSet
}

// connectLighthouse connects to Lighthouse's broker.
func (b *bridge) connectLighthouse(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := b.local.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.BridgeLighthouseSecret}, secret); err != nil {
		return fmt.Errorf("read the credential for Lighthouse's broker in Secret %s/%s: %w; it has the keys server, ca.crt, namespace and token, "+
			"as Submariner's Secret submariner-broker-secret", objects.AgentNamespace, objects.BridgeLighthouseSecret, err)
	}
	cfg, namespace, err := lighthouseConfig(secret)
	if err != nil {
		return err
	}
	cfg.Wrap(b.WrapLighthouse)
	watch, write := rest.CopyConfig(cfg), rest.CopyConfig(cfg)
	watch.Wrap(b.lighthouseTransport.Wrap)
	write.Wrap(member.NewTransport().Wrap)
	if b.lighthouse, err = cache.New(watch, b.lighthouseCache(namespace)); err == nil {
		b.lighthouseClient, err = client.New(write, client.Options{
			Scheme: b.scheme, Mapper: newMapper(), Cache: &client.CacheOptions{Reader: b.lighthouse},
		})
	}
	if err != nil {
		return fmt.Errorf("set up the connection to Lighthouse's broker: %w", err)
	}
	b.lighthouseNamespace = namespace
	return nil
}

// lighthouseConfig returns a client configuration for Lighthouse's broker, and its namespace.
func lighthouseConfig(secret *corev1.Secret) (*rest.Config, string, error) {
	get := func(key string) string { return string(secret.Data[key]) }
	for _, key := range []string{objects.LighthouseKeyServer, objects.LighthouseKeyNamespace, objects.LighthouseKeyToken} {
		if get(key) == "" {
			return nil, "", fmt.Errorf("secret %s/%s has no %s: copy it from Submariner's Secret submariner-broker-secret; the server is "+
				"brokerK8sApiServer of its Submariner resource", secret.Namespace, secret.Name, key)
		}
	}
	host := get(objects.LighthouseKeyServer)
	if !strings.Contains(host, "://") {
		host = "https://" + host // Submariner keeps it without the scheme
	}
	return &rest.Config{
		Host: host, BearerToken: get(objects.LighthouseKeyToken), TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data[objects.LighthouseKeyCA]},
		QPS: -1, UserAgent: "seamark-bridge",
	}, get(objects.LighthouseKeyNamespace), nil
}

// addRunnables adds what runs beside the reconcilers. Caches run on the leader only: another
// replica writes nothing.
func (b *bridge) addRunnables(context.Context) error {
	for _, c := range b.members {
		if err := c.run(b.manager); err != nil {
			return err
		}
	}
	return errors.Join(
		b.manager.Add(manager.RunnableFunc(b.seamark.Start)),
		b.manager.Add(manager.RunnableFunc(b.lighthouse.Start)),
		b.manager.Add(manager.RunnableFunc(b.poll)),
		b.manager.AddHealthzCheck("process", healthz.Ping),
		b.manager.AddReadyzCheck("bridge", b.ready),
	)
}

// ready returns why the bridge does not work, for the readiness probe. A replica that is not the
// leader is ready.
func (b *bridge) ready(*http.Request) error {
	select {
	case <-b.manager.Elected():
	default:
		return nil
	}
	if !b.reconciler.synced.Load() {
		return errors.New("the objects of both brokers have not been read yet")
	}
	return b.reconciler.trouble()
}

// clusterOf returns what the admin of Seamark's broker grants a member.
func (b *bridge) clusterOf(ctx context.Context) objects.ClusterOf {
	return func(id string) *v1alpha1.Cluster {
		cluster := &v1alpha1.Cluster{}
		if b.seamark.Get(ctx, types.NamespacedName{Namespace: b.members[0].membership.Namespace, Name: id}, cluster) != nil {
			return nil
		}
		return cluster
	}
}
