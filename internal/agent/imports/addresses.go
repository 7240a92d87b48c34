package imports

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// setAddresses sets the addresses of the ServiceImport. Addresses and families are equal in number
// and order. Without addresses the families stay as they are: they are those to come.
func setAddresses(in Input, si *mcsv1beta1.ServiceImport) {
	clusterSetIPs := acceptedClusterSetIPs(in)
	if in.recordsClusterSetIPs() {
		recordClusterSetIPs(in, si, clusterSetIPs)
	}
	available := in.importAddresses(clusterSetIPs)
	var ips []string
	var families []corev1.IPFamily
	for _, family := range si.Spec.IPFamilies {
		if i := slices.IndexFunc(available, func(a netip.Addr) bool { return objects.FamilyOf(a) == family }); i >= 0 {
			ips, families = append(ips, available[i].String()), append(families, family)
		}
	}
	if len(ips) > 0 {
		si.Spec.IPs, si.Spec.IPFamilies = ips, families
	}
}

// acceptedClusterSetIPs returns the clusterset IPs of the aggregate that lie in the clusterset's
// ranges and belong to no other service. While there is no aggregate, because the broker lost it,
// they are those recorded on this cluster's ServiceImport.
func acceptedClusterSetIPs(in Input) []netip.Addr {
	var candidates []netip.Addr
	switch {
	case in.Aggregate != nil:
		candidates = objects.ParseAddresses(in.Aggregate.Spec.IPs)
	case in.Existing != nil:
		candidates = RememberedIPs(in.Existing)
	}
	return slices.DeleteFunc(candidates, func(addr netip.Addr) bool {
		inRange := slices.ContainsFunc(in.Ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
		return !inRange || in.HasOlderClaim(addr)
	})
}

// RememberedIPs returns the clusterset IPs recorded on a ServiceImport of this cluster.
func RememberedIPs(si *mcsv1beta1.ServiceImport) []netip.Addr {
	text := si.Annotations[v1alpha1.AnnotationClusterSetIPs]
	if text == "" {
		return nil
	}
	return objects.ParseAddresses(strings.Split(text, ","))
}

// recordClusterSetIPs records the clusterset IPs, and the cluster that allocated them, on the
// ServiceImport: a broker that lost the aggregate gets it back with the same IPs.
func recordClusterSetIPs(in Input, si *mcsv1beta1.ServiceImport, ips []netip.Addr) {
	if len(ips) == 0 {
		return
	}
	texts := make([]string, len(ips))
	for i, addr := range ips {
		texts[i] = addr.String()
	}
	annotate(si, v1alpha1.AnnotationClusterSetIPs, strings.Join(texts, ","))
	// An aggregate may have lost its annotations to an edit. It gets them back from what its importers
	// recorded, so their record stays.
	for _, source := range []*mcsv1beta1.ServiceImport{in.Aggregate, in.Existing} {
		if source == nil {
			continue
		}
		if by := source.Annotations[v1alpha1.AnnotationAllocatedBy]; by != "" {
			annotate(si, v1alpha1.AnnotationAllocatedBy, by)
			return
		}
	}
}

func annotate(si *mcsv1beta1.ServiceImport, key, value string) {
	if si.Annotations == nil {
		si.Annotations = map[string]string{}
	}
	si.Annotations[key] = value
}
