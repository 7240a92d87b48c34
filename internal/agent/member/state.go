package member

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/objects"
)

// State is what this member knows of its clusterset: whether it is connected, its settings and
// which members are alive.
type State struct {
	Membership objects.Membership
	// Families are the address families of this cluster.
	Families []corev1.IPFamily
	// OldDistribution is true for an API server before 1.34; see imports.Settings.
	OldDistribution bool
	// HoldsClusterID reports whether the id belongs to this cluster, NodesSynced whether all its
	// nodes are known. Nothing is published or imported before.
	HoldsClusterID func() bool
	NodesSynced    func() bool
	Liveness       *Liveness

	listed     atomic.Bool
	judged     atomic.Bool
	newest     atomic.Int64 // the highest resource version of a lease that was received
	watched    atomic.Int64 // that of this member's own lease as received from the watch
	clusterSet atomic.Pointer[v1alpha1.ClusterSet]
	cluster    atomic.Pointer[v1alpha1.Cluster]
}

// WatchBroker updates the state from the broker's cache. brokerKinds are the kinds that must have
// been listed, and leasesRead what must be true, before the member counts as connected. changed is
// called when the settings changed.
func (s *State) WatchBroker(ctx context.Context, c cache.Cache, brokerKinds []client.Object, leasesRead func() bool, changed func()) error {
	if err := keepLatest(ctx, c, s.Membership.ClusterSet, &s.clusterSet, changed); err != nil {
		return err
	}
	if err := keepLatest(ctx, c, s.Membership.ClusterID, &s.cluster, changed); err != nil {
		return err
	}
	ownLeaseObserved, err := Watch(ctx, c, &coordinationv1.Lease{}, func(lease *coordinationv1.Lease, deleted bool) {
		switch {
		case lease.Name != s.Membership.ClusterID:
		case deleted:
			s.Liveness.Forget(lease.Name, time.Now())
		default:
			s.watched.Store(objects.ResourceVersion(lease))
			s.ObserveLease(lease)
		}
	})
	if err != nil {
		return err
	}
	synced := []toolscache.InformerSynced{ownLeaseObserved, leasesRead}
	for _, kind := range brokerKinds {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T on the broker: %w", kind, err)
		}
		synced = append(synced, informer.HasSynced)
	}
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
			s.listed.Store(true)
			changed()
		}
	}()
	return nil
}

// keepLatest stores the object of that name in latest, and calls changed when its spec or its
// annotations changed. A deleted object is kept: members go on with the last known settings.
func keepLatest[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c cache.Cache, name string, latest *atomic.Pointer[T], changed func()) error {
	_, err := Watch(ctx, c, P(new(T)), func(obj P, deleted bool) {
		if obj.GetName() != name || deleted {
			return
		}
		if old := latest.Swap(obj); old == nil || P(old).GetGeneration() != obj.GetGeneration() ||
			!maps.Equal(P(old).GetAnnotations(), obj.GetAnnotations()) {
			changed()
		}
	})
	return err
}

// NewestLease returns the highest resource version of all leases that were received, WatchedLease
// that of this member's own lease as received from the watch.
func (s *State) NewestLease() int64 { return s.newest.Load() }

// WatchedLease is described at NewestLease.
func (s *State) WatchedLease() int64 { return s.watched.Load() }

// ForgetNewestLease is called when the broker was restored from a backup: what is received from now
// on is older.
func (s *State) ForgetNewestLease() {
	s.newest.Store(0)
	s.watched.Store(0)
}

// ObserveLease records a lease that was received.
func (s *State) ObserveLease(lease *coordinationv1.Lease) {
	version := objects.ResourceVersion(lease)
	for known := s.newest.Load(); version > known && !s.newest.CompareAndSwap(known, version); known = s.newest.Load() {
	}
	now := time.Now()
	if lease.Spec.RenewTime == nil {
		s.Liveness.Forget(lease.Name, now) // removed, left, or invited but not joined yet
		return
	}
	s.Liveness.Observe(lease.Name, LastRenewal{lease.Spec.RenewTime.Time, objects.LeaseDurationOf(lease), version}, now)
}

// Watch calls observe for every object of a kind in a cache, when it is added, updated or deleted.
// synced reports whether observe has been called for all objects of the first list.
func Watch[T client.Object](ctx context.Context, c cache.Cache, kind T, observe func(obj T, deleted bool)) (synced func() bool, err error) {
	return trigger.Handle(ctx, c, kind, trigger.EventHandler[T]{
		Add:    func(obj T) { observe(obj, false) },
		Update: func(_, obj T) { observe(obj, false) },
		Delete: func(obj T, _ bool) { observe(obj, true) },
	})
}

// Listed reports whether the broker's objects, the leases among them, have been listed once.
func (s *State) Listed() bool { return s.listed.Load() }

// SetJudged records that Liveness has judged the members for the first time.
func (s *State) SetJudged() { s.judged.Store(true) }

// Judged reports whether SetJudged was called.
func (s *State) Judged() bool { return s.judged.Load() }

// Known reports whether the broker's objects and the nodes are known, and the id belongs to this
// cluster.
func (s *State) Known() bool {
	return s.Listed() && s.cluster.Load() != nil && s.clusterSet.Load() != nil && s.NodesSynced() && s.HoldsClusterID()
}

// Connected reports whether all that decisions need is known, and the members have been judged. It
// stays true if the broker becomes unreachable later: its last known state remains valid.
func (s *State) Connected() bool { return s.Judged() && s.Known() }

// Blocks returns the blocks of clusterset IPs that this member allocates from.
func (s *State) Blocks() []netip.Prefix {
	cluster := s.cluster.Load()
	if cluster == nil {
		return nil
	}
	return objects.ParsePrefixes(cluster.Spec.ClusterSetIPBlocks)
}

// Cluster returns this member's own object on the broker, or nil until it is known.
func (s *State) Cluster() *v1alpha1.Cluster { return s.cluster.Load() }

// ClusterSet returns the clusterset's object on the broker, or nil until it is known.
func (s *State) ClusterSet() *v1alpha1.ClusterSet { return s.clusterSet.Load() }
