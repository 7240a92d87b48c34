// Package addresses decides which IP addresses an endpoint of another cluster can have. It is apart
// from package objects because the data plane's decisions use it, and those import no API client.
package addresses

import "net/netip"

// Unusable returns why no endpoint of another cluster can have an address, or "" if one can: every
// node gives these addresses a meaning of its own, so clients would be sent to themselves, to their
// node or to their cloud's metadata service.
func Unusable(addr netip.Addr) string {
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
