package member

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// State is what this member knows of its clusterset: whether it is connected, what it may do, who is alive.
type State struct {
	Membership objects.Membership
	// Families are the address families of this cluster.
	Families []corev1.IPFamily
	// OldDistribution tells an API server before 1.34; see imports.Settings.
	OldDistribution bool
	// Held tells whether the id is this cluster's, NodesKnown whether its nodes are; nothing is exchanged before.
	Held       func() bool
	NodesKnown func() bool
	Liveness   *Liveness

	synced     atomic.Bool
	clusterSet atomic.Pointer[v1alpha1.ClusterSet]
	cluster    atomic.Pointer[v1alpha1.Cluster]
}

// Follow keeps the state up to date from the broker's cache. brokerKinds are the kinds that must have been listed before the
// broker's view counts; changed is called when the settings changed.
func (s *State) Follow(ctx context.Context, c cache.Cache, brokerKinds []client.Object, changed func()) error {
	if _, err := Watch(ctx, c, &v1alpha1.ClusterSet{}, func(set *v1alpha1.ClusterSet, gone bool) {
		if set.Name == s.Membership.ClusterSet && !gone {
			old := s.clusterSet.Swap(set)
			if old == nil || old.Generation != set.Generation {
				changed()
			}
		}
	}); err != nil {
		return err
	}
	if _, err := Watch(ctx, c, &v1alpha1.Cluster{}, func(cluster *v1alpha1.Cluster, gone bool) {
		if cluster.Name == s.Membership.ClusterID && !gone {
			old := s.cluster.Swap(cluster)
			if old == nil || old.Generation != cluster.Generation {
				changed()
			}
		}
	}); err != nil {
		return err
	}
	if _, err := Watch(ctx, c, &coordinationv1.Lease{}, s.observe); err != nil {
		return err
	}
	var synced []toolscache.InformerSynced
	for _, kind := range brokerKinds {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T on the broker: %w", kind, err)
		}
		synced = append(synced, informer.HasSynced)
	}
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
			s.synced.Store(true)
			changed()
		}
	}()
	return nil
}

func (s *State) observe(lease *coordinationv1.Lease, gone bool) {
	if gone {
		s.Liveness.Forget(lease.Name)
		return
	}
	if lease.Spec.RenewTime == nil {
		return // invited, but not there yet
	}
	s.Liveness.Observe(lease.Name, lease.Spec.RenewTime.Time, objects.LeaseDurationOf(lease), time.Now())
}

// Watch tells seen about every object of a kind in a cache, when it comes, changes and goes. synced tells whether it has been told
// about all that were there.
func Watch[T client.Object](ctx context.Context, c cache.Cache, kind T, seen func(obj T, gone bool)) (synced func() bool, err error) {
	informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	tell := func(obj any, gone bool) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if typed, ok := obj.(T); ok {
			seen(typed, gone)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj, false) },
		UpdateFunc: func(_, obj any) { tell(obj, false) },
		DeleteFunc: func(obj any) { tell(obj, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

// Connected tells whether the broker's objects are known and the id is this cluster's. It stays so when the broker goes away
// later: its last known state is then as good as any.
func (s *State) Connected() bool {
	return s.synced.Load() && s.cluster.Load() != nil && s.clusterSet.Load() != nil && s.NodesKnown() && s.Held()
}

// Blocks are the blocks of clusterset IPs that this member allocates from.
func (s *State) Blocks() []netip.Prefix {
	cluster := s.cluster.Load()
	if cluster == nil {
		return nil
	}
	var out []netip.Prefix
	for _, text := range cluster.Spec.ClusterSetIPBlocks {
		if prefix, err := netip.ParsePrefix(string(text)); err == nil {
			out = append(out, prefix)
		}
	}
	return out
}

// Cluster is this member's own object on the broker, nil until it is known.
func (s *State) Cluster() *v1alpha1.Cluster { return s.cluster.Load() }

// ClusterSet is the clusterset's object on the broker, nil until it is known.
func (s *State) ClusterSet() *v1alpha1.ClusterSet { return s.clusterSet.Load() }
