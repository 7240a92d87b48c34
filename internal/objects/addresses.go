package objects

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// ParseAddresses returns the texts that are IP addresses.
func ParseAddresses(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// ParsePrefixes returns the texts that are ranges of IP addresses.
func ParsePrefixes[T ~string](texts []T) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(string(text)); err == nil {
			out = append(out, prefix.Masked())
		}
	}
	return out
}

// HasEarlierRecord reports whether an agent wrote one of the records that keeps clusterset IPs in
// aggregates and not in records.
func HasEarlierRecord(records []*v1alpha1.ExportRecord) bool {
	return slices.ContainsFunc(records, func(r *v1alpha1.ExportRecord) bool { return r.Spec.MergeVersion == 0 })
}
