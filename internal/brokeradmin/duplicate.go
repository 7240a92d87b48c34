package brokeradmin

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

// localLeader returns what identifies the leader of this cluster's agents in their election, empty
// if there is none.
func localLeader(ctx context.Context, c client.Client) (string, error) {
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.AgentLease}, lease)
	if err != nil && !absent(err) {
		return "", fmt.Errorf("read lease %s/%s: %w", objects.AgentNamespace, objects.AgentLease, err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// checkIsHolder returns objects.ErrClusterIDTaken if another cluster uses this cluster's id: what
// the broker has under the id is not this cluster's to delete.
func checkIsHolder(ctx context.Context, broker client.Client, m objects.Membership, uid, leader string) error {
	lease := &coordinationv1.Lease{}
	if err := broker.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.ClusterID}, lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if (holder != "" && holder != uid) || (leader != "" && objects.IsMarkedBy(lease, objects.LeaderNonce(leader))) {
		return objects.ErrClusterIDTaken
	}
	return nil
}
