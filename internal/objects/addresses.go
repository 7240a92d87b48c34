package objects

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// UnusableAddress returns why no endpoint of another cluster can have an address, or "" if one can:
// every node gives these addresses a meaning of its own, so clients would be sent to themselves, to
// their node or to their cloud's metadata service.
func UnusableAddress(addr netip.Addr) string {
	switch {
	case addr.Is4In6() || addr.Zone() != "":
		return "is not in plain form"
	case addr.IsLoopback():
		return "is a loopback address"
	case addr.IsLinkLocalUnicast():
		return "is a link-local address"
	case addr.IsMulticast():
		return "is a multicast address"
	case addr.IsUnspecified():
		return "is unspecified"
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is the broadcast address"
	}
	return ""
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
