package imports

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// setAddresses sets the addresses of the ServiceImport. Addresses and families are equal in number
// and order. Without addresses the families stay as they are: they are those to come.
func setAddresses(in Input, si *mcsv1beta1.ServiceImport) {
	clusterSetIPs := acceptedClusterSetIPs(in)
	recordClusterSetIPs(in, si, clusterSetIPs)
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

// acceptedClusterSetIPs returns the clusterset IPs that the records claim. Those of families that
// no record claims, because the broker lost the records or an agent of an earlier version wrote
// them, are what this cluster last saw.
func acceptedClusterSetIPs(in Input) []netip.Addr {
	var ips []netip.Addr
	for _, claim := range merge.ClusterSetIPs(in.Records, in.Accepts) {
		ips = append(ips, claim.IP)
	}
	for _, addr := range in.Remembered {
		decided := slices.ContainsFunc(ips, func(a netip.Addr) bool { return a.Is4() == addr.Is4() })
		if !decided && in.Accepts(addr) {
			ips = append(ips, addr)
		}
	}
	return ips
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
// ServiceImport: a broker that lost the records gets the service back with the same IPs.
func recordClusterSetIPs(in Input, si *mcsv1beta1.ServiceImport, ips []netip.Addr) {
	if len(ips) == 0 {
		return
	}
	texts := make([]string, len(ips))
	for i, addr := range ips {
		texts[i] = addr.String()
	}
	annotate(si, v1alpha1.AnnotationClusterSetIPs, strings.Join(texts, ","))
	by := in.BlockOwner(ips[0])
	if by == "" && in.Existing != nil {
		by = in.Existing.Annotations[v1alpha1.AnnotationAllocatedBy] // that cluster is no longer a member
	}
	if by != "" {
		annotate(si, v1alpha1.AnnotationAllocatedBy, by)
	}
}

func annotate(si *mcsv1beta1.ServiceImport, key, value string) {
	if si.Annotations == nil {
		si.Annotations = map[string]string{}
	}
	si.Annotations[key] = value
}
