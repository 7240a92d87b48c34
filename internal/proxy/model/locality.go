package model

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// tier is a distance. A service with a preferred tier uses the first tier from there outwards with
// an endpoint.
type tier int

const (
	sameNode tier = iota
	sameZone
	sameRegion
	sameCluster
	anywhere
)

// preference is the locality that a service prefers.
type preference struct {
	// localOnly admits only endpoints of this node.
	localOnly bool
	// nearest is the first tier to try.
	nearest tier
}

// preferenceOf returns a service's preference. trafficDistribution is a field of the API and takes
// precedence over Seamark's annotation. A value of either that this version does not know has no
// effect.
func preferenceOf(si *mcsv1beta1.ServiceImport) preference {
	p := preference{nearest: anywhere}
	policy := ptr.Deref(si.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	p.localOnly = policy == corev1.ServiceInternalTrafficPolicyLocal
	switch si.Annotations[v1alpha1.AnnotationPrefer] {
	case v1alpha1.PreferRegion:
		p.nearest = sameRegion
	case v1alpha1.PreferCluster:
		p.nearest = sameCluster
	}
	switch ptr.Deref(si.Spec.TrafficDistribution, "") {
	case corev1.ServiceTrafficDistributionPreferSameNode:
		p.nearest = sameNode
	case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferClose:
		p.nearest = sameZone
	}
	return p
}

// selectEndpoints returns the endpoints to use: the ready ones of the nearest tier that has any or,
// if no endpoint at all is ready, those that still serve while they terminate.
func selectEndpoints(all []candidate, p preference) []candidate {
	if p.localOnly {
		all = filter(all, func(c *candidate) bool { return c.inTier[sameNode] })
	}
	pool := filter(all, func(c *candidate) bool { return c.ready })
	if len(pool) == 0 {
		pool = filter(all, func(c *candidate) bool { return c.terminating })
	}
	for t := p.nearest; t < anywhere; t++ {
		if near := filter(pool, func(c *candidate) bool { return c.inTier[t] }); len(near) > 0 {
			return near
		}
	}
	return pool
}

// draining returns the endpoints that serve and were not chosen. Both lists are sorted by address.
func draining(all, chosen []candidate) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range all {
		if len(chosen) > 0 && chosen[0].address == all[i].address {
			chosen = chosen[1:]
			continue
		}
		if all[i].usable() {
			out = append(out, all[i].address)
		}
	}
	return out
}

func filter(all []candidate, keep func(*candidate) bool) []candidate {
	var out []candidate
	for i := range all {
		if keep(&all[i]) {
			out = append(out, all[i])
		}
	}
	return out
}
