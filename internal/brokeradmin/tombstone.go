package brokeradmin

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// A removed member leaves a tombstone on the broker: its Lease, marked with the time of the
// removal, and its account with nothing but the permission to read that Lease. The member's agent
// thus learns that it was removed; a refused credential alone could also be an expired one.
// Inviting the cluster again replaces the tombstone. Other removals delete it when no token can be
// valid any more.

// tombstoneLifetime is longer than tokens are valid that an admin would hand out.
const tombstoneLifetime = 30 * 24 * time.Hour

// markLease marks a member's Lease as that of a cluster which is no member any more, and reports
// whether it was one before.
func markLease(ctx context.Context, c client.Client, namespace, id string, holds func(*coordinationv1.Lease) bool) (marked bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease := &coordinationv1.Lease{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: id}, lease); err != nil {
			return err
		}
		if objects.RemovedAt(lease) != "" || !holds(lease) {
			return nil
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = nil, nil
		delete(lease.Annotations, v1alpha1.AnnotationNonce) // that of a leader which does not renew it any more
		objects.MarkRemoved(lease, time.Now().UTC().Format(time.RFC3339))
		marked = true
		return c.Update(ctx, lease)
	})
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("mark lease %s: %w", id, err)
	}
	return marked, nil
}

// narrowRole leaves a removed member nothing but the permission to read its Lease. It reports
// whether the member had more.
func narrowRole(ctx context.Context, c client.Client, namespace, id string) (narrowed bool, err error) {
	role := &rbacv1.Role{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(ownRole(namespace, id)), role); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if rules := tombstoneRules(id); !equality.Semantic.DeepEqual(role.Rules, rules) {
		role.Rules = rules
		if err := c.Update(ctx, role); err != nil {
			return false, fmt.Errorf("narrow Role %s: %w", role.Name, err)
		}
		return true, nil
	}
	return false, nil
}

// removedSince returns since when a member is removed, "" if there is no tombstone.
func removedSince(ctx context.Context, c client.Client, namespace, id string) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: id}, lease); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return objects.RemovedAt(lease), nil
}

// deleteTombstones deletes the tombstones that are due. Leases of clusters that left but are still
// registered are no tombstones.
func deleteTombstones(ctx context.Context, c client.Client, namespace string, due func(removedAt string) bool) error {
	leases, err := listMetadata(ctx, c, &coordinationv1.Lease{}, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	for i := range leases {
		at, id := objects.RemovedAt(&leases[i]), leases[i].Name
		if at == "" || !due(at) {
			continue
		}
		err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: id}, &v1alpha1.Cluster{})
		if err == nil {
			continue
		}
		if !absent(err) {
			return fmt.Errorf("look for cluster %s: %w", id, err)
		}
		toDelete := []client.Object{memberAccount(namespace, id), ownRole(namespace, id), memberBinding(namespace, id), sharedBinding(namespace, id)}
		if _, err := deleteAll(ctx, c, append(toDelete, &leases[i])); err != nil {
			return err
		}
	}
	return nil
}

// expired reports whether a tombstone has served its purpose.
func expired(removedAt string) bool {
	at, err := time.Parse(time.RFC3339, removedAt)
	return err != nil || time.Since(at) > tombstoneLifetime
}
