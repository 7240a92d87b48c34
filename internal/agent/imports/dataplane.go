package imports

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// This file holds everything of an import that depends on the data plane: where its addresses come
// from, whether it has a derived Service, and what its slices carry.

// importAddresses returns the addresses at which clients of this cluster reach the service: the
// ClusterIPs of the derived Service, or else the clusterset IPs themselves.
func (in Input) importAddresses(clusterSetIPs []netip.Addr) []netip.Addr {
	switch {
	case !in.DataPlane.DerivesService:
		return clusterSetIPs
	case isDerived(in.Derived, in.Service):
		return objects.ParseAddresses(in.Derived.Spec.ClusterIPs)
	}
	return nil
}

// whyNoAddress returns why an import that should have an address has none.
func (in Input) whyNoAddress() (mcsv1beta1.ServiceImportConditionReason, string) {
	if in.DataPlane.DerivesService {
		return in.whyNoDerivedService()
	}
	return in.whyNoClusterSetIP()
}

func (in Input) whyNoDerivedService() (mcsv1beta1.ServiceImportConditionReason, string) {
	name := objects.DerivedServiceName(in.Service.Name)
	switch {
	case in.DerivedError != nil && !objects.IsWriteConflict(in.DerivedError):
		return v1alpha1.ServiceImportReasonDerivedServiceRefused,
			fmt.Sprintf("its Service %s cannot be written: %.700s", name, in.DerivedError)
	case in.Derived != nil && !isDerived(in.Derived, in.Service):
		return v1alpha1.ServiceImportReasonDerivedServiceForeign,
			fmt.Sprintf("there is already a Service %s that is not managed by Seamark: delete it or give it another name", name)
	}
	return mcsv1beta1.ServiceImportReasonPending, "waiting for its Service " + name
}

func (in Input) whyNoClusterSetIP() (mcsv1beta1.ServiceImportConditionReason, string) {
	var ips []string
	for _, claim := range merge.ClusterSetIPs(in.Records, func(addr netip.Addr) bool { return !in.Accepts(addr) }) {
		ips = append(ips, claim.IP.String())
	}
	if len(ips) == 0 || len(acceptedClusterSetIPs(in)) > 0 {
		return mcsv1beta1.ServiceImportReasonPending,
			"waiting for a clusterset IP: the exporting clusters have not allocated one yet; their ServiceExports say why if they cannot"
	}
	if len(ips) == 1 {
		return v1alpha1.ServiceImportReasonClusterSetIPRejected, fmt.Sprintf(
			"clusterset IP %s is not used: it is outside the clusterset's ranges or belongs to another service", ips[0])
	}
	return v1alpha1.ServiceImportReasonClusterSetIPRejected, fmt.Sprintf(
		"clusterset IPs %s are not used: they are outside the clusterset's ranges or belong to another service", enumerate(ips))
}

// adaptSlice adds to a slice what depends on the mode of the service and on the data plane: the
// labels by which this cluster's controllers and DNS servers tell whether the slice is for them,
// and what the derived Service needs.
func (in Input) adaptSlice(s *discoveryv1.EndpointSlice, spec *mcsv1beta1.ServiceImportSpec, mode merge.Mode) {
	if mode == merge.ModeClusterSetIP {
		s.Labels[v1alpha1.LabelClusterSetIP] = ""
	}
	if in.DataPlane.DerivesService && mode == merge.ModeClusterSetIP {
		s.Labels[discoveryv1.LabelServiceName] = objects.DerivedServiceName(in.Service.Name)
		in.addServiceHints(s, spec)
		return
	}
	s.Labels[discoveryv1.LabelServiceName] = objects.UnusedServiceName(in.Service.Name, s.Labels[mcsv1beta1.LabelSourceCluster], in.ClusterID)
	s.Labels[corev1.IsHeadlessService] = "" // kube-proxy and Cilium do not watch slices with this label
}

// addServiceHints sets the hints by which the cluster's Service implementation keeps traffic of the
// derived Service close. No other controller sets hints for a Service without a selector.
func (in Input) addServiceHints(s *discoveryv1.EndpointSlice, spec *mcsv1beta1.ServiceImportSpec) {
	distribution := ptr.Deref(spec.TrafficDistribution, "")
	sameNode := distribution == corev1.ServiceTrafficDistributionPreferSameNode && !in.OldDistribution
	switch distribution {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode:
	default:
		return
	}
	s.Endpoints = slices.Clone(s.Endpoints) // the cache shares them
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Hints = nil
		if e.Zone != nil {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *e.Zone}}}
		}
		if sameNode && e.NodeName != nil {
			if e.Hints == nil {
				e.Hints = &discoveryv1.EndpointHints{}
			}
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
		}
	}
}
