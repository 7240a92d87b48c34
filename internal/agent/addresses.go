package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/aggregate"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/objects"
)

// followAddresses keeps the pool of clusterset IPs true: what all aggregates have is in use, and what this cluster remembers of them.
func (a *agent) watchAddresses(ctx context.Context) error {
	a.pool.OnFreed = a.aggregatePush.Push
	published, err := member.Watch(ctx, a.broker.GetCache(), &mcsv1beta1.ServiceImport{}, func(si *mcsv1beta1.ServiceImport, gone bool) {
		service, ok := objects.ServiceOf(si)
		switch {
		case !ok:
		case gone:
			a.pool.SetPublished(service, nil)
		default:
			a.pool.SetPublished(service, aggregate.AddressesOf(si).IPs)
		}
	})
	if err != nil {
		return err
	}
	remembered, err := member.Watch(ctx, a.manager.GetCache(), &mcsv1beta1.ServiceImport{}, func(si *mcsv1beta1.ServiceImport, gone bool) {
		service := types.NamespacedName{Namespace: si.Namespace, Name: si.Name}
		switch {
		case !objects.IsManagedImport(si):
		case gone:
			a.pool.SetRemembered(service, nil)
		default:
			a.pool.SetRemembered(service, imports.RememberedIPs(si))
		}
	})
	a.addressesKnown = func() bool { return published() && remembered() && a.blocksKnown.Load() }
	return err
}

// takeBlocks tells the pool which addresses are this member's to give.
func (a *agent) updateBlocks() {
	a.pool.SetBlocks(a.state.Blocks())
	a.blocksKnown.Store(a.state.Cluster() != nil)
}

// remembered is what this cluster last saw of a service's addresses.
func (a *agent) lastKnownAddresses(ctx context.Context, service types.NamespacedName) aggregate.Addresses {
	si := &mcsv1beta1.ServiceImport{}
	if err := a.manager.GetClient().Get(ctx, service, si); err != nil || !objects.IsManagedImport(si) {
		return aggregate.Addresses{}
	}
	return aggregate.Addresses{IPs: imports.RememberedIPs(si), AllocatedBy: si.Annotations[v1alpha1.AnnotationAllocatedBy]}
}

// hunger remembers which services have no clusterset IP although they should, for their ServiceExports to say.
type shortages struct {
	mu      sync.Mutex
	reasons map[types.NamespacedName]error
	// changed is told when there is something new to say about a service.
	changed func(...types.NamespacedName)
}

func (h *shortages) set(service types.NamespacedName, why error) {
	h.mu.Lock()
	old := h.reasons[service]
	if why == nil {
		delete(h.reasons, service)
	} else {
		h.reasons[service] = why
	}
	h.mu.Unlock()
	if fmt.Sprint(old) != fmt.Sprint(why) {
		h.changed(service)
	}
}

func (h *shortages) get(service types.NamespacedName) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reasons[service]
}

// beforeSameNode tells an API server before 1.34, which drops what it does not know of traffic distribution.
func lacksPreferSameNode(c discovery.ServerVersionInterface) (bool, error) {
	info, err := c.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("ask this cluster for its version: %w", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	return err == nil && info.Major == "1" && minor < 34, nil
}
