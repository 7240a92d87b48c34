package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/aggregate"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/objects"
)

// watchAddresses updates the pool of clusterset IPs: addresses of all aggregates on the broker are
// in use, and so are those that this cluster's ServiceImports remember.
func (a *agent) watchAddresses(ctx context.Context) error {
	a.pool.OnFreed = a.aggregatePush.Push
	published, err := member.Watch(ctx, a.broker.GetCache(), &mcsv1beta1.ServiceImport{}, func(si *mcsv1beta1.ServiceImport, deleted bool) {
		service, ok := objects.ServiceOf(si)
		switch {
		case !ok:
		case deleted:
			a.pool.SetPublished(service, nil)
		default:
			a.pool.SetPublished(service, aggregate.AddressesOf(si).IPs)
		}
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
	a.addressesKnown = func() bool { return published() && remembered() && a.blocksKnown.Load() }
	return err
}

// updateBlocks sets the blocks that this member allocates clusterset IPs from.
func (a *agent) updateBlocks() {
	a.pool.SetBlocks(a.state.Blocks())
	a.blocksKnown.Store(a.state.Cluster() != nil)
}

// lastKnownAddresses returns the clusterset IPs of a service that this cluster last observed.
func (a *agent) lastKnownAddresses(ctx context.Context, service types.NamespacedName) aggregate.Addresses {
	si := &mcsv1beta1.ServiceImport{}
	if err := a.manager.GetClient().Get(ctx, service, si); err != nil || !objects.IsManagedImport(si) {
		return aggregate.Addresses{}
	}
	return aggregate.Addresses{IPs: imports.RememberedIPs(si), AllocatedBy: si.Annotations[v1alpha1.AnnotationAllocatedBy]}
}
