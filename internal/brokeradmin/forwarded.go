package brokeradmin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// ForwardedRanges reads which reverse names the DNS of a member should forward to seamark-dns; see
// objects.ForwardedRanges. c is a client of the member.
func ForwardedRanges(ctx context.Context, c client.Client) ([]netip.Prefix, error) {
	local, err := ReadLocal(ctx, c)
	if err != nil {
		return nil, err
	}
	m := local.Membership
	if m == nil {
		return nil, errors.New("this cluster is not a member of a clusterset")
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	own := objects.OwnRanges(nodes.Items, objects.ParsePrefixes(objects.ServiceCIDRs(ctx, c)))
	config := m.Config()
	config.Timeout = brokerTimeout
	broker, err := NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("the broker at %s: %w", m.Server, err)
	}
	set, members := &v1alpha1.ClusterSet{}, &v1alpha1.ClusterList{}
	if err := broker.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.ClusterSet}, set); err != nil {
		return nil, explainBroker(*m, err)
	}
	if err := broker.List(ctx, members, client.InNamespace(m.Namespace)); err != nil {
		return nil, explainBroker(*m, err)
	}
	return objects.ForwardedRanges(set, members.Items, m.ClusterID, own), nil
}
