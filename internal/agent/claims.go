package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/subscription"
	"github.com/seamark-dev/seamark/internal/agent/vip"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Claims of services that do not concern this cluster change seldom: one that it exported once, or
// that has an address of a block that another member had before, ends. Until that is read its
// address is not used again, so the interval may be long. It grows with the number of members, for
// whom the broker goes through all records.
const (
	claimInterval  = 10 * time.Minute
	claimPerMember = 3 * time.Second
	claimTimeout   = time.Minute
	claimPage      = 500
)

// foreignClaims reads which addresses of this member's blocks are in use by services of namespaces
// that do not concern this cluster, so that they are not allocated again.
type foreignClaims struct {
	namespace string
	broker    client.Client // uncached
	log       logr.Logger
	pool      *vip.Pool
	// blocks returns the blocks of this member, known whether they have been read.
	blocks     func() []netip.Prefix
	known      func() bool
	namespaces *subscription.Namespaces
	members    func() int
	// pollEvery is how often it is looked whether the blocks changed.
	pollEvery time.Duration
	// blocksRead is called when other blocks have been read.
	blocksRead func()

	mu     sync.Mutex
	listed bool
	read   []netip.Prefix // the blocks whose claims have been read
	held   map[foreignClaim]bool
}

type foreignClaim struct {
	service types.NamespacedName
	cluster string
}

// Listed reports whether the claims have been read once. There are none if all namespaces concern
// this cluster.
func (f *foreignClaims) Listed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed || f.namespaces.AreAll()
}

// Blocks returns the blocks of this member whose claims have been read: those that it may allocate
// from.
func (f *foreignClaims) Blocks() []netip.Prefix {
	if f.namespaces.AreAll() {
		return f.blocks()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read
}

// adopt keeps the claim of a record that the cache does not hold any more because its namespace
// does not concern this cluster. The next list shows whether the record still exists.
func (f *foreignClaims) adopt(service types.NamespacedName, cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[foreignClaim{service, cluster}] = true
}

// Start reads the claims until ctx ends: at once when the blocks change, else at intervals.
func (f *foreignClaims) Start(ctx context.Context) error {
	if f.namespaces.AreAll() {
		return nil
	}
	failed, next := 0, time.Now()
	for sleep(ctx, f.pollEvery) {
		blocks := f.blocks()
		isRead := slices.Equal(blocks, f.Blocks())
		if !f.known() || time.Now().Before(next) && (failed > 0 || isRead && f.Listed()) {
			continue
		}
		if err := f.list(ctx, blocks); err != nil {
			next = time.Now().Add(member.RetryDelay(failed, f.members()))
			if failed++; failed == 1 && ctx.Err() == nil {
				f.log.Info("cannot read which addresses of this cluster's blocks are in use; retrying", "error", err.Error())
			}
			continue
		}
		if !isRead {
			f.blocksRead()
		}
		failed, next = 0, time.Now().Add(claimDelay(f.members()))
	}
	return nil
}

// claimDelay returns when one of so many members reads the claims again: after half of the interval
// to one and a half of it.
func claimDelay(members int) time.Duration {
	interval := max(claimInterval, time.Duration(members)*claimPerMember)
	return interval/2 + rand.N(interval)
}

// list reads the claims, and frees those that ended.
func (f *foreignClaims) list(ctx context.Context, blocks []netip.Prefix) error {
	claimed := map[foreignClaim][]netip.Addr{}
	for _, selector := range append(objects.ClaimSelectors(blocks), objects.UnlabelledClaims) {
		if err := f.listSelected(ctx, selector, claimed); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for claim, addrs := range claimed {
		if !f.namespaces.Concern(claim.service.Namespace) {
			f.held[claim] = true
			f.pool.SetRecorded(claim.service, claim.cluster, addrs)
		}
	}
	for claim := range f.held {
		if f.namespaces.Concern(claim.service.Namespace) {
			delete(f.held, claim) // the cache has the record
		} else if claimed[claim] == nil {
			delete(f.held, claim)
			f.pool.SetRecorded(claim.service, claim.cluster, nil)
		}
	}
	f.listed, f.read = true, slices.Clone(blocks)
	return nil
}

// listSelected adds the claims of the selected records. It reads them in pages.
func (f *foreignClaims) listSelected(ctx context.Context, selector string, claimed map[foreignClaim][]netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	parsed, err := labels.Parse(selector)
	if err != nil {
		return fmt.Errorf("select claims: %w", err)
	}
	list := &v1alpha1.ExportRecordList{}
	for {
		err := f.broker.List(ctx, list, client.InNamespace(f.namespace), client.MatchingLabelsSelector{Selector: parsed},
			client.Limit(claimPage), client.Continue(list.Continue))
		if err != nil {
			return fmt.Errorf("list records with claims: %w", err)
		}
		for i := range list.Items {
			r := &list.Items[i]
			if addrs := objects.ParseAddresses(r.Spec.ClusterSetIPs); len(addrs) > 0 && objects.CheckRecord(r) == nil {
				service := types.NamespacedName{Namespace: r.Spec.ServiceNamespace, Name: r.Spec.ServiceName}
				claimed[foreignClaim{service, string(r.Spec.ClusterID)}] = addrs
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}
