package imports

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// address sets the ServiceImport's addresses: those of the derived Service, or the clusterset's own. Addresses and families are
// equal in number and order; without addresses the families stay as they are: they tell what there will be.
func address(in Input, si *mcsv1beta1.ServiceImport) {
	agreed := agreedIPs(in)
	viaService, derived := in.DataPlane == v1alpha1.DataPlaneService, isDerived(in.Derived, in.Service)
	if !viaService || derived || (in.Existing != nil && len(RememberedIPs(in.Existing)) > 0) {
		remember(in, si, agreed)
	} // else they are told when the Service has addresses, in one write with those
	if viaService {
		agreed = nil
		if derived {
			agreed = parse(in.Derived.Spec.ClusterIPs)
		}
	}
	var ips []string
	var families []corev1.IPFamily
	for _, family := range si.Spec.IPFamilies {
		if i := slices.IndexFunc(agreed, func(a netip.Addr) bool { return FamilyOf(a) == family }); i >= 0 {
			ips, families = append(ips, agreed[i].String()), append(families, family)
		}
	}
	if len(ips) > 0 {
		si.Spec.IPs, si.Spec.IPFamilies = ips, families
	}
}

// agreedIPs are the addresses of the aggregate that lie in the clusterset's ranges and are no other service's. While there is no
// aggregate, which the broker may have lost, they are those it last had.
func agreedIPs(in Input) []netip.Addr {
	var candidates []netip.Addr
	switch {
	case in.Aggregate != nil:
		candidates = parse(in.Aggregate.Spec.IPs)
	case in.Existing != nil:
		candidates = RememberedIPs(in.Existing)
	}
	return slices.DeleteFunc(candidates, func(addr netip.Addr) bool {
		inRange := slices.ContainsFunc(in.Ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
		return !inRange || in.IsOthersAddress(addr)
	})
}

// RememberedIPs are the addresses that a ServiceImport of this cluster says its aggregate had.
func RememberedIPs(si *mcsv1beta1.ServiceImport) []netip.Addr {
	text := si.Annotations[v1alpha1.AnnotationClusterSetIPs]
	if text == "" {
		return nil
	}
	return parse(strings.Split(text, ","))
}

func remember(in Input, si *mcsv1beta1.ServiceImport, agreed []netip.Addr) {
	if len(agreed) == 0 {
		return
	}
	texts := make([]string, len(agreed))
	for i, addr := range agreed {
		texts[i] = addr.String()
	}
	annotate(si, v1alpha1.AnnotationClusterSetIPs, strings.Join(texts, ","))
	for _, source := range []*mcsv1beta1.ServiceImport{in.Aggregate, in.Existing} {
		if source == nil {
			continue
		}
		// An aggregate that lost its annotations, to somebody's edit, has them back from those who remember.
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

// parse reads addresses, leaving out what is none.
func parse(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, addr)
		}
	}
	return out
}
