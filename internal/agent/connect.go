package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/daemon/kinds"
	"github.com/seamark-dev/seamark/internal/objects"
)

// connect creates the manager of this cluster and the connection to the broker.
func (a *agent) connect(context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	local := localCache()
	local.DefaultWatchErrorHandler = a.watchFailed
	a.manager, err = ctrl.NewManager(a.Local, ctrl.Options{
		Scheme:         scheme,
		MapperProvider: staticMapper,
		Cache:          local,
		Logger:         a.Log,
		Metrics: metricsserver.Options{
			BindAddress: a.MetricsAddress,
			ExtraHandlers: map[string]http.Handler{
				objects.WaitingPath: &a.metrics.Waiting, objects.ReachabilityPath: a.prober,
			},
		},
		HealthProbeBindAddress:        a.ProbeAddress,
		PprofBindAddress:              a.PprofAddress,
		LeaderElection:                a.LeaderElection,
		LeaderElectionID:              "seamark-agent",
		LeaderElectionNamespace:       objects.AgentNamespace,
		LeaderElectionReleaseOnCancel: true,
		Controller: config.Controller{
			MaxConcurrentReconciles: workers,
			SkipNameValidation:      ptr.To(true), // several agents run in one process in tests
		},
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if err := a.connectToBroker(scheme); err != nil {
		return err
	}
	renewal := &member.Renewal{
		Credential: a.credential, Membership: a.stored, Local: a.localDirect, Broker: a.brokerDirect, Log: a.Log.WithName("credential"),
	}
	invitations, err := cache.New(a.Local, invitationCache(scheme))
	if err != nil {
		return fmt.Errorf("set up the watch of invitations: %w", err)
	}
	return errors.Join(
		a.manager.Add(renewal),
		a.manager.Add(everyReplica(invitations.Start)),
		a.manager.Add(everyReplica(func(ctx context.Context) error {
			return renewal.WatchMembership(ctx, a.manager.GetCache(), a.memberships())
		})),
		a.manager.Add(everyReplica(func(ctx context.Context) error { return a.memberships().WatchInvitation(ctx, invitations) })),
	)
}

// connectToBroker creates the connection to the broker.
func (a *agent) connectToBroker(scheme *runtime.Scheme) error {
	a.credential = member.NewCredential(a.membership.Token)
	cfg := a.credential.Config(a.membership)
	cfg.Wrap(a.WrapBroker)
	cfg.Wrap(kinds.New(func() {}).Wrap) // the agent of the broker's cluster restores them
	cfg.Wrap(a.brokerTransport.Wrap)
	versions, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return fmt.Errorf("set up the connection to the broker: %w", err)
	}
	a.broker, err = cluster.New(cfg, func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.Logger = scheme, staticMapper, a.Log
		o.Cache = brokerCache(versions, a.membership.Namespace, a.namespaces, &foreignContent{a.membership.ClusterID, a.content, a.limitsOf})
	})
	if err != nil {
		return fmt.Errorf("set up the connection to the broker: %w", err)
	}
	// What it lists must not count as a list by a watch: see Transport.
	direct := a.credential.Config(a.membership)
	direct.Wrap(a.WrapBroker)
	direct.Wrap(member.NewTransport().Wrap)
	if a.brokerDirect, err = client.New(direct, client.Options{Scheme: scheme, Mapper: newMapper()}); err != nil {
		return fmt.Errorf("set up the connection to the broker: %w", err)
	}
	return nil
}
