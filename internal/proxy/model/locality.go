package model

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// tier is a distance. A service that asks for one gets the nearest from there outwards that has an endpoint.
type tier int

const (
	sameNode tier = iota
	sameZone
	sameRegion
	sameCluster
	anywhere
)

// Values of the annotation v1alpha1.AnnotationPrefer.
const (
	preferRegion  = "region"
	preferCluster = "cluster"
)

// wish is how near a service wants its endpoints.
type preference struct {
	// local admits only endpoints of this node.
	localOnly bool
	// start is the first tier to look at.
	nearest tier
}

// wishOf reads a service's wishes. trafficDistribution is a field of the API and wins over our annotation; a value of either that this
// version does not know asks for nothing.
func preferenceOf(si *mcsv1beta1.ServiceImport) preference {
	w := preference{nearest: anywhere}
	w.localOnly = ptr.Deref(si.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) == corev1.ServiceInternalTrafficPolicyLocal
	switch si.Annotations[v1alpha1.AnnotationPrefer] {
	case preferRegion:
		w.nearest = sameRegion
	case preferCluster:
		w.nearest = sameCluster
	}
	switch ptr.Deref(si.Spec.TrafficDistribution, "") {
	case corev1.ServiceTrafficDistributionPreferSameNode:
		w.nearest = sameNode
	case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferClose:
		w.nearest = sameZone
	}
	return w
}

// choose returns the endpoints to use: the ready ones of the nearest tier that has any, or, when nothing at all is ready, those that
// still serve while they terminate.
func selectEndpoints(all []candidate, w preference) []candidate {
	if w.localOnly {
		all = filter(all, func(c *candidate) bool { return c.inTier[sameNode] })
	}
	pool := filter(all, func(c *candidate) bool { return c.ready })
	if len(pool) == 0 {
		pool = filter(all, func(c *candidate) bool { return c.terminating })
	}
	for t := w.nearest; t < anywhere; t++ {
		if near := filter(pool, func(c *candidate) bool { return c.inTier[t] }); len(near) > 0 {
			return near
		}
	}
	return pool
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
