package member

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Beacons holds where this cluster's own beacons answer.
type Beacons struct {
	changed func()

	mu     sync.Mutex
	slices map[string]*discoveryv1.EndpointSlice
}

// WatchBeacons returns the beacons of this cluster, updated from its cache. changed is called when
// their addresses changed.
func WatchBeacons(ctx context.Context, c cache.Cache, changed func()) (*Beacons, error) {
	b := &Beacons{changed: changed, slices: map[string]*discoveryv1.EndpointSlice{}}
	_, err := Watch(ctx, c, &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice, deleted bool) {
		if s.Namespace == objects.AgentNamespace && s.Labels[discoveryv1.LabelServiceName] == objects.BeaconService {
			b.set(s, deleted)
		}
	})
	return b, err
}

func (b *Beacons) set(s *discoveryv1.EndpointSlice, deleted bool) {
	b.mu.Lock()
	before := beaconAddresses(b.slices)
	if deleted {
		delete(b.slices, s.Name)
	} else {
		b.slices[s.Name] = s
	}
	after := beaconAddresses(b.slices)
	b.mu.Unlock()
	if !slices.Equal(before, after) {
		b.changed()
	}
}

// Addresses returns the addresses of the beacons that are ready, sorted and bounded.
func (b *Beacons) Addresses() []v1alpha1.BeaconAddress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return beaconAddresses(b.slices)
}

// beaconAddresses returns the addresses of ready endpoints in a fixed order. Those on nodes of
// their own come before those that share a node with an earlier one: of many, those are published
// that fail apart from each other.
func beaconAddresses(from map[string]*discoveryv1.EndpointSlice) []v1alpha1.BeaconAddress {
	type candidate struct {
		addr netip.Addr
		node string
		rank int
	}
	var all []candidate
	for _, s := range from {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			for _, addr := range objects.ParseAddresses(e.Addresses) {
				all = append(all, candidate{addr: addr, node: objects.NodeHash(ptr.Deref(e.NodeName, ""))})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return a.addr.Compare(b.addr) })
	all = slices.CompactFunc(all, func(a, b candidate) bool { return a.addr == b.addr })
	onNode := map[corev1.IPFamily]map[string]int{corev1.IPv4Protocol: {}, corev1.IPv6Protocol: {}}
	for i := range all {
		family := objects.FamilyOf(all[i].addr)
		all[i].rank = onNode[family][all[i].node]
		onNode[family][all[i].node]++
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	var out []v1alpha1.BeaconAddress
	count := map[corev1.IPFamily]int{}
	for _, c := range all {
		if family := objects.FamilyOf(c.addr); count[family] < objects.MaxBeacons {
			count[family]++
			out = append(out, v1alpha1.BeaconAddress{IP: c.addr.String(), Node: c.node})
		}
	}
	return out
}

var beaconSecretKey = types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.BeaconSecret}

// EnsureBeaconKey returns the key of this cluster's beacons. If the Secret that the beacons read
// has none for this cluster, it is written: with the key that is published already, so that beacons
// that have not read the Secret again go on answering, or else with a new one. The chart creates
// the Secret; with create, one that is missing is created here.
func EnsureBeaconKey(ctx context.Context, c client.Client, clusterID string, published *v1alpha1.Beacons, create bool) ([]byte, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, beaconSecretKey, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && (!missing || !create) {
		return nil, fmt.Errorf("read Secret %s: %w", beaconSecretKey, err)
	}
	key := secret.Data[wire.KeyFile]
	_, valid := wire.ParseKey(key)
	if valid && string(secret.Data[wire.ClusterIDFile]) == clusterID {
		return key, nil
	}
	key = newBeaconKey(published)
	secret.Data = map[string][]byte{wire.KeyFile: key, wire.ClusterIDFile: []byte(clusterID)}
	write := func(s *corev1.Secret) error { return c.Update(ctx, s) }
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{
			Namespace: beaconSecretKey.Namespace, Name: beaconSecretKey.Name,
			Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark},
		}
		write = func(s *corev1.Secret) error { return c.Create(ctx, s) }
	}
	if err := write(secret); err != nil {
		return nil, fmt.Errorf("write Secret %s: %w", beaconSecretKey, err)
	}
	return key, nil
}

func newBeaconKey(published *v1alpha1.Beacons) []byte {
	if published != nil {
		if _, valid := wire.ParseKey(published.Key); valid {
			return published.Key
		}
	}
	key := make([]byte, wire.KeySize)
	_, _ = rand.Read(key) // it never fails
	return key
}
