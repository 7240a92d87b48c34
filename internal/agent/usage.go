package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/limits"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/objects"
)

// usages compares what each member publishes with its limits.
type usages struct {
	own string
	// importsChanged and exportsChanged reconcile services again whose verdict may have changed.
	importsChanged, exportsChanged func(...types.NamespacedName)

	mu       sync.Mutex
	byMember map[string]*limits.Usage
	// publishing are the other clusters that publish something: few of many members, because an agent
	// reads only what concerns its cluster.
	publishing map[string]struct{}
	// waiting are exports of this cluster that are not published because of its limits.
	waiting map[types.NamespacedName]bool
}

// admits reports whether a service of a member is within the member's limits.
func (u *usages) admits(clusterID string, service types.NamespacedName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of(clusterID).Admits(service)
}

// admitsOwn is admits for a service that this cluster exports. A refused service is reconciled
// again when there may be room.
func (u *usages) admitsOwn(service types.NamespacedName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	admitted := u.of(u.own).Admits(service)
	if admitted {
		delete(u.waiting, service)
	} else {
		u.waiting[service] = true
	}
	return admitted
}

// members returns the other clusters that publish something.
func (u *usages) members() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.publishing))
}

func (u *usages) of(clusterID string) *limits.Usage {
	usage := u.byMember[clusterID]
	if usage == nil {
		usage = limits.NewUsage()
		u.byMember[clusterID] = usage
	}
	return usage
}

// update changes the usage of a member, and reconciles the services whose verdict changed.
func (u *usages) update(clusterID string, change func(*limits.Usage) []types.NamespacedName) {
	u.mu.Lock()
	usage := u.of(clusterID)
	affected := change(usage)
	if clusterID == u.own || usage.Empty() {
		delete(u.publishing, clusterID)
	} else {
		u.publishing[clusterID] = struct{}{}
	}
	var exports []types.NamespacedName
	if clusterID == u.own {
		exports = affected
		for service := range u.waiting {
			if u.of(u.own).Admits(service) {
				exports = append(exports, service)
			}
		}
	}
	u.mu.Unlock()
	u.importsChanged(affected...)
	u.exportsChanged(exports...)
}

// concerned returns the other clusters that concern this one: those that publish something, and
// those from which it imports although the broker may have lost their records.
func (a *agent) concerned() []string { return append(a.usages.members(), a.sources.clusters()...) }

// watchUsage counts what all members publish.
func (a *agent) watchUsage(ctx context.Context) error {
	_, err := member.Watch(ctx, a.broker.GetCache(), &v1alpha1.ExportRecord{}, func(r *v1alpha1.ExportRecord, deleted bool) {
		if deleted {
			a.content.Forget(contentKey(r))
		}
		a.count(r, func(u *limits.Usage, service types.NamespacedName) []types.NamespacedName {
			if deleted {
				return u.RemoveRecord(service)
			}
			affected := u.SetRecord(service, r.CreationTimestamp.Time, recordBytes(r))
			if !u.Admits(service) {
				affected = append(affected, service) // it may have been reconciled before it was counted
			}
			return affected
		})
	})
	if err != nil {
		return err
	}
	_, err = member.Watch(ctx, a.broker.GetCache(), &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice, deleted bool) {
		if deleted {
			a.content.Forget(contentKey(s))
		}
		a.count(s, func(u *limits.Usage, service types.NamespacedName) []types.NamespacedName {
			if deleted {
				return u.SetSlice(service, s.Name, 0, 0)
			}
			return u.SetSlice(service, s.Name, sliceEndpoints(s), sliceBytes(s))
		})
	})
	if err != nil {
		return err
	}
	_, err = member.Watch(ctx, a.broker.GetCache(), &mcsv1beta1.ServiceImport{}, a.forgetDeleted)
	return err
}

// forgetDeleted frees what a deleted object counted in the cache of the broker.
func (a *agent) forgetDeleted(si *mcsv1beta1.ServiceImport, deleted bool) {
	if deleted {
		a.content.Forget(contentKey(si))
	}
}

// limitsOf returns the limits of the member of an account.
func (a *agent) limitsOf(account string) objects.Limits {
	if a.clusters == nil {
		return objects.DefaultLimits
	}
	return objects.LimitsOf(a.clusters.Get(memberOf(account)))
}

// count changes the usage of the member that an object of the broker belongs to.
func (a *agent) count(obj metav1.Object, change func(*limits.Usage, types.NamespacedName) []types.NamespacedName) {
	source := obj.GetLabels()[mcsv1beta1.LabelSourceCluster]
	if service, ok := objects.ServiceOf(obj); ok && source != "" {
		a.usages.update(source, func(u *limits.Usage) []types.NamespacedName { return change(u, service) })
	}
}

func size(texts map[string]string) int {
	n := 0
	for key, value := range texts {
		n += len(key) + len(value)
	}
	return n
}

// clusterChanged applies what the broker's admin grants a member now.
func (a *agent) clusterChanged(id string) {
	granted := objects.LimitsOf(a.clusters.Get(id))
	a.usages.update(id, func(u *limits.Usage) []types.NamespacedName { return u.SetLimits(granted) })
	a.resyncServicesOf(id)
}

// overLimit says why this cluster may not publish one more service. It names no counts: each change
// of a condition is a write.
func (a *agent) overLimit() string {
	return fmt.Sprintf("cluster %s exports more than the broker's admin allows, which is %s: the oldest exports stay (spec.limits of its Cluster)",
		a.membership.ClusterID, objects.LimitsOf(a.state.Cluster()))
}
