package objects

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ServiceCIDRs returns the ranges of this cluster's ClusterIPs, sorted. It returns none if the API
// server is too old to publish them.
func ServiceCIDRs(ctx context.Context, c client.Reader) []string {
	var list networkingv1.ServiceCIDRList
	if err := c.List(ctx, &list); err != nil {
		return nil // networking.k8s.io/v1 ServiceCIDR came with Kubernetes 1.33
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Spec.CIDRs...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Families returns the address families that Services of this cluster can have: those of its
// service ranges or, if the API server does not publish them, those of the Service kubernetes.
func Families(ctx context.Context, c client.Reader) ([]corev1.IPFamily, error) {
	var out []corev1.IPFamily
	add := func(addr netip.Addr) {
		family := FamilyOf(addr)
		if !slices.Contains(out, family) {
			out = append(out, family)
		}
	}
	for _, cidr := range ServiceCIDRs(ctx, c) {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			add(prefix.Addr())
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	svc := &corev1.Service{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: "kubernetes"}, svc); err != nil {
		return nil, fmt.Errorf("read this cluster's address families from Service default/kubernetes: %w", err)
	}
	return svc.Spec.IPFamilies, nil
}
