package agent

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/seamark-dev/seamark/internal/agent/limits"
	"github.com/seamark-dev/seamark/internal/agent/subscription"
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/objects"
)

// World is what a simulated agent is connected to instead of API servers, controllers and watches.
type World struct {
	Membership objects.Membership
	Facts      ClusterFacts
	// Local runs the tasks of the agent. It and Broker hold the caches of the two API servers.
	Local  manager.Manager
	Broker cluster.Cluster
	// LocalDirect and BrokerDirect do not read from caches.
	LocalDirect, BrokerDirect client.Client
	// Control runs a reconciler with its sources.
	Control func(name string, r reconcile.Reconciler, sources []source.Source) error
	// WriteAll makes the writes of one reconcile in the order of the simulation.
	WriteAll func(writes []func() error) error
	// RestartWatches makes all watches of the broker start over; Restarted reports whether they have.
	RestartWatches func()
	Restarted      func() bool
}

// Simulate assembles an agent as Run does, with all its reconcilers, watches and tasks, in a
// simulated world. It returns when the agent is assembled; the world runs it.
func Simulate(ctx context.Context, o Options, w World) error {
	a := newAgent(o)
	a.namespaces = subscription.Every()
	a.membership, a.facts = w.Membership, w.Facts
	a.manager, a.broker, a.localDirect, a.brokerDirect = w.Local, w.Broker, w.LocalDirect, w.BrokerDirect
	a.control = func(name string, r *telemetry.InstrumentedReconciler, sources []source.Source) error {
		return w.Control(name, r, sources)
	}
	a.writeAll, a.restartWatches, a.restarted = w.WriteAll, w.RestartWatches, w.Restarted
	a.watchesLeases = func() bool { return true }
	a.fieldIndexer = func(c cluster.Cluster, _ bool) client.FieldIndexer { return c.GetFieldIndexer() }
	return a.assemble(ctx)
}

// SimulatedCaches returns the options of the two caches of an agent. Kinds of which no field is
// dropped need no transformation: it would only make equal strings share memory.
func SimulatedCaches(m objects.Membership) (local, broker cache.Options) {
	foreign := &foreignContent{m.ClusterID, limits.NewContent(), func(string) objects.Limits { return objects.DefaultLimits }}
	local, broker = localCache(), brokerCache(nil, m.Namespace, subscription.Every(), foreign)
	local.DefaultTransform, broker.DefaultTransform = nil, nil
	return local, broker
}
