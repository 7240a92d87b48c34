package brokeradmin

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Member is a member as the broker records it.
type Member struct {
	ClusterID string          `json:"clusterID"`
	Blocks    []v1alpha1.CIDR `json:"clusterSetIPBlocks"`
	// AllowedNamespaces is empty where all but system namespaces are allowed.
	AllowedNamespaces []string           `json:"allowedNamespaces"`
	AgentVersion      string             `json:"agentVersion,omitempty"`
	DataPlane         v1alpha1.DataPlane `json:"dataPlane,omitempty"`
	// LastHeartbeat is when the member last renewed its lease, by its own clock. It is nil when the
	// cluster never joined.
	LastHeartbeat *time.Time `json:"lastHeartbeat,omitempty"`
	// Exports is how many services it exports.
	Exports int `json:"exports"`
}

// ListClusters returns all members, ordered by id.
func ListClusters(ctx context.Context, c client.Client, namespace string) ([]Member, error) {
	if _, err := findClusterSet(ctx, c, namespace); err != nil {
		return nil, err
	}
	var clusters v1alpha1.ClusterList
	var leases coordinationv1.LeaseList
	for _, list := range []client.ObjectList{&clusters, &leases} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list the members: %w", err)
		}
	}
	records, err := listMetadata(ctx, c, &v1alpha1.ExportRecord{}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	exports := map[string]int{}
	for i := range records {
		exports[records[i].Labels[mcsv1beta1.LabelSourceCluster]]++
	}
	heartbeats := map[string]*time.Time{}
	for i := range leases.Items {
		if renewed := leases.Items[i].Spec.RenewTime; renewed != nil {
			heartbeats[leases.Items[i].Name] = &renewed.Time
		}
	}
	members := make([]Member, 0, len(clusters.Items)) // the API server lists by name
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		members = append(members, Member{
			ClusterID:         cluster.Name,
			Blocks:            append([]v1alpha1.CIDR{}, cluster.Spec.ClusterSetIPBlocks...),
			AllowedNamespaces: append([]string{}, cluster.Spec.AllowedNamespaces...),
			AgentVersion:      cluster.Status.AgentVersion,
			DataPlane:         cluster.Status.DataPlane,
			LastHeartbeat:     heartbeats[cluster.Name],
			Exports:           exports[cluster.Name],
		})
	}
	return members, nil
}

// ClusterSetName returns the name of the clusterset whose broker is in the namespace. It fails if
// there is no broker.
func ClusterSetName(ctx context.Context, c client.Client, namespace string) (string, error) {
	set, err := findClusterSet(ctx, c, namespace)
	if err != nil {
		return "", err
	}
	return set.Name, nil
}
