package objects

import "net/netip"

// UnusableAddress returns why an endpoint of another cluster cannot have the address, or "" if it
// can. Such addresses mean something else on every node: clients would reach themselves, their node
// or their cloud's metadata service.
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
