package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/aggregate"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
)

// pollInterval is how often it is checked whether the bridge may write for more clusters, or fewer.
const pollInterval = 200 * time.Millisecond

// addReconcilers adds the reconciler between the brokers, and for each Lighthouse cluster the one
// of an agent that lists it in aggregates of Seamark's broker.
func (b *bridge) addReconcilers(ctx context.Context) error {
	if err := b.addIndexes(ctx); err != nil {
		return err
	}
	log := b.Log.WithName("withdrawals")
	r := &reconciler{
		bridge: b, writer: apply.NewWriter(b.lighthouseClient),
		fromLighthouse: newWithdrawals(b.WithdrawalHold, log, b.LighthouseClusters),
		fromSeamark:    newWithdrawals(b.WithdrawalHold, log, b.SeamarkClusters),
	}
	r.fromLighthouse.count, r.fromSeamark.count = b.countOnSeamark(r.fromLighthouse), b.countOnLighthouse(r.fromSeamark)
	b.reconciler = r
	err := b.control("bridge", r,
		trigger.WatchWith(b.seamark, &v1alpha1.ExportRecord{}, seamarkKeys[*v1alpha1.ExportRecord], trigger.Hooks[*v1alpha1.ExportRecord]{
			Changed: func(rec *v1alpha1.ExportRecord, deleted bool) {
				if key, ok := objects.ServiceOf(rec); ok {
					r.fromSeamark.changed(key, string(rec.Spec.ClusterID), rec, deleted)
				}
			},
		}),
		trigger.Watch(b.seamark, &discoveryv1.EndpointSlice{}, seamarkKeys[*discoveryv1.EndpointSlice]),
		trigger.WatchWith(b.lighthouse, &mcsv1alpha1.ServiceImport{}, lighthouseKeys[*mcsv1alpha1.ServiceImport],
			trigger.Hooks[*mcsv1alpha1.ServiceImport]{Changed: func(si *mcsv1alpha1.ServiceImport, deleted bool) {
				if key, ok := lighthouseService(si); ok && !isAggregate(si) && !isBridged(si) {
					r.fromLighthouse.changed(key, sourceCluster(si), si, deleted)
				}
			}}),
		trigger.Watch(b.lighthouse, &discoveryv1.EndpointSlice{}, lighthouseKeys[*discoveryv1.EndpointSlice]),
	)
	if err != nil {
		return err
	}
	for _, c := range b.members {
		if err := b.addAggregate(ctx, c); err != nil {
			return err
		}
	}
	return b.watchSettings(ctx)
}

// addAggregate adds the reconciler of aggregates of an agent, for one Lighthouse cluster.
func (b *bridge) addAggregate(ctx context.Context, c *bridged) error {
	id := c.membership.ClusterID
	deferred := trigger.NewDeferred(&trigger.Burst{})
	none := func() map[string]bool { return nil } // exporters that are away are only waited for longer
	return b.control("aggregate-"+id, &aggregate.Reconciler{
		ClusterID: id, BrokerNamespace: c.membership.Namespace, Broker: c.cached, Direct: c.direct, Writer: apply.NewWriter(c.cached),
		Stale: none, Demoted: none, Taken: c.heartbeat.ClusterIDTaken, ClusterOf: b.clusterOf(ctx),
		Connected: func() bool { return b.reconciler.synced.Load() && c.usable() },
		Accepts: func(context.Context, types.NamespacedName) func(netip.Addr) bool {
			return func(netip.Addr) bool { return true }
		},
		// Without clusterset IPs of its own, a Lighthouse cluster names no owner of a block.
		BlockOwner: func(netip.Addr) string { return "" }, Deferred: deferred,
	},
		trigger.Watch(b.seamark, &v1alpha1.ExportRecord{}, seamarkKeys[*v1alpha1.ExportRecord]),
		trigger.WatchWith(b.seamark, &mcsv1beta1.ServiceImport{}, seamarkKeys[*mcsv1beta1.ServiceImport], aggregate.Hooks(id)),
		deferred.Source(),
	)
}

// control adds a controller to the manager. It can be made to reconcile all services.
func (b *bridge) control(name string, r reconcile.Reconciler, sources ...source.Source) error {
	c, err := controller.New(name, b.manager, controller.Options{
		Reconciler: r,
		LogConstructor: func(request *reconcile.Request) logr.Logger {
			log := b.Log.WithName(name)
			if request == nil {
				return log.V(1) // controller-runtime logs a line for each source it starts
			}
			return log.WithValues("service", request.String())
		},
	})
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	push := &trigger.Push{}
	b.resyncs = append(b.resyncs, push.Push)
	for _, s := range append(sources, push.Source()) {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("set up %s: %w", name, err)
		}
	}
	return nil
}

// watchSettings reconciles all services when the admin of Seamark's broker changes what a member
// may do.
func (b *bridge) watchSettings(ctx context.Context) error {
	resync := func() { b.resync(ctx) }
	_, err := trigger.Handle(ctx, b.seamark, &v1alpha1.Cluster{}, trigger.EventHandler[*v1alpha1.Cluster]{
		Add: func(*v1alpha1.Cluster) { resync() },
		Update: func(before, after *v1alpha1.Cluster) {
			if before.Generation != after.Generation {
				resync()
			}
		},
		Delete: func(*v1alpha1.Cluster, bool) { resync() },
	})
	if err != nil {
		return err
	}
	_, err = trigger.Handle(ctx, b.seamark, &v1alpha1.ClusterSet{}, trigger.EventHandler[*v1alpha1.ClusterSet]{})
	return err
}

// poll reconciles all services when both brokers have been read, and when the bridge may write for
// more clusters than before, or fewer.
func (b *bridge) poll(ctx context.Context) error {
	if !b.seamark.WaitForCacheSync(ctx) || !b.lighthouse.WaitForCacheSync(ctx) {
		return nil // ctx ended
	}
	b.Log.Info("read both brokers")
	b.reconciler.synced.Store(true)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for last := "none"; ; {
		usable, trouble := "", ""
		for _, c := range b.members {
			usable += fmt.Sprint(c.usable(), " ")
		}
		for _, id := range b.SeamarkClusters {
			if err := b.reconciler.takenOnLighthouse(ctx, id); err != nil {
				usable, trouble = usable+id+" ", trouble+err.Error()
			}
		}
		if usable != last {
			if last = usable; trouble != "" {
				b.Log.Info("not writing for all clusters", "reason", trouble)
			}
			b.resync(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// resync reconciles all services, if both brokers have been read.
func (b *bridge) resync(ctx context.Context) {
	if !b.reconciler.synced.Load() {
		return
	}
	keys, err := b.services(ctx)
	if err != nil {
		b.Log.Error(err, "cannot list all services")
		return
	}
	for _, push := range b.resyncs {
		push(keys...)
	}
}

func seamarkKeys[T client.Object](obj T) []types.NamespacedName {
	if key, ok := objects.ServiceOf(obj); ok {
		return []types.NamespacedName{key}
	}
	return nil
}

func lighthouseKeys[T client.Object](obj T) []types.NamespacedName {
	if key, ok := lighthouseService(obj); ok {
		return []types.NamespacedName{key}
	}
	return nil
}
