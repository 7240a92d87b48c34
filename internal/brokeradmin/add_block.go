package brokeradmin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// maxBlocks is how many blocks a Cluster can have.
const maxBlocks = 32

// AddBlockResult is what AddBlock did.
type AddBlockResult struct {
	ClusterID string          `json:"clusterID"`
	Added     []v1alpha1.CIDR `json:"added"`
	Blocks    []v1alpha1.CIDR `json:"clusterSetIPBlocks"`
}

// AddBlock gives a member further blocks of clusterset IPs: the wanted ones, or the next free one
// of each family. Those that it has stay. Its agent allocates from the new ones when the others are
// used up.
func AddBlock(ctx context.Context, c client.Client, namespace, id string, wanted []netip.Prefix) (AddBlockResult, error) {
	set, err := findClusterSet(ctx, c, namespace)
	if err != nil {
		return AddBlockResult{}, err
	}
	for range blockRounds {
		cluster, added, err := addOnce(ctx, c, set, id, wanted)
		if err != nil {
			return AddBlockResult{}, err
		}
		if cluster == nil {
			select { // the other admin's program may wait, too
			case <-ctx.Done():
				return AddBlockResult{}, ctx.Err()
			case <-time.After(rand.N(time.Second)):
			}
			continue
		}
		return AddBlockResult{ClusterID: id, Added: added, Blocks: cluster.Spec.ClusterSetIPBlocks}, nil
	}
	return AddBlockResult{}, fmt.Errorf("cluster %s got no further block: other admins changed it, or took the block, %d times; try again",
		id, blockRounds)
}

// addOnce writes the blocks, and then looks whether another member got one of them at the same
// time. The later of two sees the other one, and takes its blocks back. It returns no Cluster if
// that was so, or if the Cluster was changed meanwhile.
func addOnce(ctx context.Context, c client.Client, set *v1alpha1.ClusterSet, id string, wanted []netip.Prefix) (
	cluster *v1alpha1.Cluster, added []v1alpha1.CIDR, err error,
) {
	clusters := &v1alpha1.ClusterList{}
	if err := c.List(ctx, clusters, client.InNamespace(set.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("list the members: %w", err)
	}
	i := slices.IndexFunc(clusters.Items, func(m v1alpha1.Cluster) bool { return m.Name == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no cluster %s in clusterset %s: seamark cluster list shows its members", id, set.Name)
	}
	cluster = clusters.Items[i].DeepCopy() // the list is read again below
	blocks, err := furtherBlocks(set.Spec.ClusterSetIP, wanted, clusters.Items)
	if err != nil {
		return nil, nil, err
	}
	if len(cluster.Spec.ClusterSetIPBlocks)+len(blocks) > maxBlocks {
		return nil, nil, fmt.Errorf("cluster %s has %d blocks, and can have %d: invite it anew with larger ones (--clusterset-ip-cidr)", id,
			len(cluster.Spec.ClusterSetIPBlocks), maxBlocks)
	}
	added = cidrs(blocks)
	cluster.Spec.ClusterSetIPBlocks = append(cluster.Spec.ClusterSetIPBlocks, added...)
	if err := c.Update(ctx, cluster); apierrors.IsConflict(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("add %s to cluster %s: %w", join(blocks), id, err)
	}
	if err := c.List(ctx, clusters, client.InNamespace(set.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("cluster %s has %s now, but whether another cluster got it too is not known "+
			"(seamark doctor compares them): list the members: %w", id, join(blocks), err)
	}
	for j := range clusters.Items {
		if other := &clusters.Items[j]; other.Name != id && overlap(added, other.Spec.ClusterSetIPBlocks) {
			return nil, nil, takeBack(ctx, c, set.Namespace, id, added)
		}
	}
	return cluster, added, nil
}

// furtherBlocks returns the wanted blocks, or the next free one of each family.
func furtherBlocks(settings v1alpha1.ClusterSetIPSettings, wanted []netip.Prefix, clusters []v1alpha1.Cluster) ([]netip.Prefix, error) {
	taken, err := blocksOf(clusters)
	if err != nil {
		return nil, err
	}
	if len(wanted) == 0 {
		return ChooseBlocks(settings, nil, taken)
	}
	ranges, err := ParseRanges(settings.Ranges)
	if err != nil {
		return nil, err
	}
	for _, w := range wanted {
		if err := checkWanted(w, ranges, taken); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// takeBack removes blocks that another member got at the same time. An address that the member has
// allocated from them meanwhile is settled between the two as any other that two services claim.
func takeBack(ctx context.Context, c client.Client, namespace, id string, blocks []v1alpha1.CIDR) error {
	for range blockRounds {
		cluster := &v1alpha1.Cluster{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: id}, cluster); err != nil {
			return fmt.Errorf("take %s back from cluster %s: %w", joinCIDRs(blocks), id, err)
		}
		cluster.Spec.ClusterSetIPBlocks = slices.DeleteFunc(cluster.Spec.ClusterSetIPBlocks, func(b v1alpha1.CIDR) bool {
			return slices.Contains(blocks, b)
		})
		err := c.Update(ctx, cluster)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("take %s back from cluster %s: %w", joinCIDRs(blocks), id, err)
		}
	}
	return fmt.Errorf("cluster %s and another one have the block %s: run seamark doctor, and remove it from one of them", id, joinCIDRs(blocks))
}
