package agent

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/agent/limits"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/objects"
)

// derivedServices are the imports that have a derived Service, or are about to get one.
type derivedServices struct {
	mu  sync.Mutex
	set map[types.NamespacedName]bool
}

// watchDerived finds the Services that were derived from imports.
func (a *agent) watchDerived(ctx context.Context) error {
	a.derived.set = map[types.NamespacedName]bool{}
	_, err := member.Watch(ctx, a.manager.GetCache(), &corev1.Service{}, func(svc *corev1.Service, deleted bool) {
		if service, ok := objects.DerivedFrom(svc); ok {
			a.setDerived(service, !deleted)
		}
	})
	return err
}

func (a *agent) setDerived(service types.NamespacedName, exists bool) {
	a.derived.mu.Lock()
	defer a.derived.mu.Unlock()
	if exists {
		a.derived.set[service] = true
	} else {
		delete(a.derived.set, service)
	}
}

// reserveDerived returns an error when derived Services have taken their share of this cluster's
// Service range: the rest is for the cluster's own Services, whatever others export. Otherwise it
// counts the Service that is created next; release takes that back.
func (a *agent) reserveDerived(service types.NamespacedName) (release func(), err error) {
	share := limits.DerivedShare(*a.serviceRanges.Load())
	a.derived.mu.Lock()
	defer a.derived.mu.Unlock()
	if !a.derived.set[service] && len(a.derived.set) >= share {
		return nil, fmt.Errorf("derived Services may take half of this cluster's Service range (%d addresses), and have: "+
			"unexport services, widen the range with a ServiceCIDR, or use the data plane nftables", share)
	}
	a.derived.set[service] = true
	return func() { a.setDerived(service, false) }, nil
}
