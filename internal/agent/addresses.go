package agent

import (
	"context"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// watchAddresses updates the pool of clusterset IPs: addresses that records on the broker claim are
// in use, and so are those that this cluster's ServiceImports remember.
func (a *agent) watchAddresses(ctx context.Context) error {
	a.pool.OnFreed = a.exportPush.Push
	a.foreignClaims = &foreignClaims{
		namespace: a.membership.Namespace, broker: a.brokerDirect, log: a.Log.WithName("addresses"), pool: a.pool,
		blocks: a.state.Blocks, known: func() bool { return a.state.Cluster() != nil },
		namespaces: a.namespaces, members: a.clusters.Len, pollEvery: a.PollEvery, blocksRead: a.requestResync,
		held: map[foreignClaim]bool{},
	}
	recorded, err := member.Watch(ctx, a.broker.GetCache(), &v1alpha1.ExportRecord{}, func(r *v1alpha1.ExportRecord, deleted bool) {
		service, ok := objects.ServiceOf(r)
		switch {
		case !ok:
		case deleted && !a.namespaces.Concern(service.Namespace):
			a.foreignClaims.adopt(service, string(r.Spec.ClusterID)) // the record may still exist
		case deleted:
			a.pool.SetRecorded(service, string(r.Spec.ClusterID), nil)
		default:
			a.pool.SetRecorded(service, string(r.Spec.ClusterID), objects.ParseAddresses(r.Spec.ClusterSetIPs))
		}
	})
	if err != nil {
		return err
	}
	owners, err := member.Watch(ctx, a.broker.GetCache(), &v1alpha1.Cluster{}, func(c *v1alpha1.Cluster, deleted bool) {
		if deleted {
			a.owners.Set(c.Name, nil)
			return
		}
		a.owners.Set(c.Name, objects.ParsePrefixes(c.Spec.ClusterSetIPBlocks))
	})
	if err != nil {
		return err
	}
	remembered, err := member.Watch(ctx, a.manager.GetCache(), &mcsv1beta1.ServiceImport{}, func(si *mcsv1beta1.ServiceImport, deleted bool) {
		service := types.NamespacedName{Namespace: si.Namespace, Name: si.Name}
		switch {
		case !objects.IsManagedImport(si):
		case deleted:
			a.pool.SetRemembered(service, nil)
		default:
			a.pool.SetRemembered(service, imports.RememberedIPs(si))
		}
	})
	a.addressesKnown = func() bool { return recorded() && owners() && remembered() && a.foreignClaims.Listed() }
	return err
}

// connected reports whether everything on the broker that decisions need is known.
func (a *agent) connected() bool {
	return a.state.Connected() && a.addressesKnown() && a.migration.synced()
}

// acceptsFor returns what reports whether a clusterset IP may be used for a service: it lies in the
// clusterset's ranges, and no record of another service has a better claim. Members that disagree
// about their blocks, or one that is malicious, must not redirect the clients of a service to
// another one.
func (a *agent) acceptsFor(ctx context.Context, service types.NamespacedName) func(netip.Addr) bool {
	ranges := objects.ParsePrefixes(a.state.ClusterSet().Spec.ClusterSetIP.Ranges)
	return func(addr netip.Addr) bool {
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return false
		}
		claims, err := index.Claims(ctx, a.broker.GetClient(), addr.String())
		if err != nil {
			return false
		}
		first := merge.FirstClaimant(objects.AdmittedRecords(claims, a.clusters.Get), a.owners.Of(addr))
		if first == nil {
			return true
		}
		of, ok := objects.ServiceOf(first)
		return ok && of == service
	}
}

// claimKeys returns the service of a record, and all others that claim one of its clusterset IPs:
// one of them may get it when the record changes.
func (a *agent) claimKeys(r *v1alpha1.ExportRecord) []types.NamespacedName {
	keys := brokerKeys(r)
	for _, ip := range r.Spec.ClusterSetIPs {
		claims, err := index.Claims(context.Background(), a.broker.GetClient(), ip)
		if err != nil {
			continue // the cache has not synced; each record triggers its own reconcile then
		}
		for _, other := range claims {
			if service, ok := objects.ServiceOf(other); ok && !slices.Contains(keys, service) {
				keys = append(keys, service)
			}
		}
	}
	return keys
}

// updateBlocks sets the blocks that this member allocates clusterset IPs from.
func (a *agent) updateBlocks() { a.pool.SetBlocks(a.foreignClaims.Blocks()) }

// lastKnownAddresses returns the clusterset IPs of a service that this cluster last observed. Of a
// service that it has not imported yet and that an agent of an earlier version exports, they are
// those of the aggregate.
func (a *agent) lastKnownAddresses(ctx context.Context, service types.NamespacedName, records []*v1alpha1.ExportRecord) []netip.Addr {
	si := &mcsv1beta1.ServiceImport{}
	if err := a.manager.GetClient().Get(ctx, service, si); err == nil && objects.IsManagedImport(si) {
		if ips := imports.RememberedIPs(si); len(ips) > 0 {
			return ips
		}
	}
	if !objects.HasEarlierRecord(records) {
		return nil
	}
	name := types.NamespacedName{Namespace: a.membership.Namespace, Name: objects.AggregateName(service)}
	if err := a.broker.GetClient().Get(ctx, name, si); err != nil {
		return nil
	}
	return objects.ParseAddresses(si.Spec.IPs)
}
