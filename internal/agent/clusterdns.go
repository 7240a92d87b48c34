package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
)

// The intervals at which the configuration of the cluster's DNS is compared: until it was found or
// made right for the first time, and afterwards.
const (
	firstDNSInterval = 2 * time.Second
	dnsInterval      = time.Minute
)

// configureClusterDNS makes the cluster's DNS forward the clusterset's names to seamark-dns, as
// `seamark join` does, and keeps it so: the ranges of members change, and a cluster's upgrade may
// reset the configuration. What it must not change it leaves and reports once.
func (a *agent) configureClusterDNS(ctx context.Context) error {
	log := a.Log.WithName("cluster-dns")
	interval, reported := firstDNSInterval, ""
	for sleep(ctx, interval) {
		if !a.state.Connected() {
			continue
		}
		left, changed, err := a.forwardNames(ctx)
		problem := left
		if err != nil {
			problem = err.Error()
		} else {
			interval = dnsInterval
		}
		if changed {
			log.Info("the cluster's DNS forwards the clusterset's names", "configmap", corefile.ConfigMap.String())
		}
		if problem != "" && problem != reported && ctx.Err() == nil {
			log.Info("the cluster's DNS is not changed: make it forward the clusterset's names yourself, see docs/install.md", "reason", problem)
		}
		reported = problem
	}
	return nil
}

// forwardNames compares the cluster's DNS with what it should be, and changes it. It returns why it
// left it as it is.
func (a *agent) forwardNames(ctx context.Context) (left string, changed bool, err error) {
	config := &corev1.ConfigMap{}
	if err := a.localDirect.Get(ctx, corefile.ConfigMap, config); apierrors.IsNotFound(err) {
		return corefile.NoCorefile, false, nil
	} else if err != nil {
		return "", false, fmt.Errorf("read ConfigMap %s: %w", corefile.ConfigMap, err)
	}
	if has, err := corefile.Has(config.Data[corefile.Key]); err == nil && !has && a.migration.leavesDNS() {
		return "", false, nil
	}
	forward, err := a.forwarding(ctx)
	if err != nil {
		return "", false, err
	}
	text, left := corefile.AddTo(config, forward)
	if left != "" || text == config.Data[corefile.Key] {
		return left, false, nil
	}
	config.Data[corefile.Key] = text
	if err := a.localDirect.Update(ctx, config); err != nil {
		return "", false, fmt.Errorf("update ConfigMap %s: %w", corefile.ConfigMap, err)
	}
	return "", true, nil
}

// forwarding returns which names go to seamark-dns, and its addresses.
func (a *agent) forwarding(ctx context.Context) (corefile.Forward, error) {
	service := &corev1.Service{}
	key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.DNSService}
	if err := a.localDirect.Get(ctx, key, service); err != nil {
		return corefile.Forward{}, fmt.Errorf("read the address of Service %s: %w", key, err)
	}
	nodes, members := &corev1.NodeList{}, &v1alpha1.ClusterList{}
	if err := a.manager.GetClient().List(ctx, nodes); err != nil {
		return corefile.Forward{}, fmt.Errorf("list the nodes: %w", err)
	}
	if err := a.broker.GetClient().List(ctx, members, client.InNamespace(a.membership.Namespace)); err != nil {
		return corefile.Forward{}, fmt.Errorf("list the members: %w", err)
	}
	var services []netip.Prefix
	if known := a.serviceRanges.Load(); known != nil {
		services = *known
	}
	ranges := objects.ForwardedRanges(a.state.ClusterSet(), members.Items, a.membership.ClusterID, objects.OwnRanges(nodes.Items, services))
	return corefile.Forward{
		Zone:    cmp.Or(service.Annotations[v1alpha1.AnnotationZone], objects.DefaultZone),
		Reverse: corefile.ReverseZones(ranges), Servers: service.Spec.ClusterIPs,
	}, nil
}
