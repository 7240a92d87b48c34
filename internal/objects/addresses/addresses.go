// Package addresses decides which IP addresses an endpoint of another cluster can have. It is apart
// from package objects because the data plane's decisions use it, and those import no API client.
package addresses

import "net/netip"

// Unusable returns why no endpoint of another cluster can have an address, or "" if one can: every
// node gives these addresses a meaning of its own, so clients would be sent to themselves, to their
// node or to their cloud's metadata service. An IPv6 address that stands for one of these in IPv4
// is unusable too.
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
	case Contain(metadata, addr):
		return "is a metadata address of a cloud"
	}
	for _, v4 := range embedded(addr) {
		// A position without an address holds zeros.
		if why := Unusable(v4); why != "" && v4.As4()[0] != 0 {
			return "stands for " + v4.String() + ", which " + why
		}
	}
	return ""
}

// metadata are the addresses, other than link-local ones, at which clouds serve credentials and
// settings of a node.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/64"),          // AWS: metadata, DNS, time and pod identity
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle Cloud, older
}

// Contain reports whether one of the ranges contains an address.
func Contain(ranges []netip.Prefix, addr netip.Addr) bool {
	for _, r := range ranges {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
	compatible = netip.MustParsePrefix("::/96")
)

// embedded returns the IPv4 addresses that gateways may translate an IPv6 address to.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	at := func(positions ...int) netip.Addr {
		return netip.AddrFrom4([4]byte{b[positions[0]], b[positions[1]], b[positions[2]], b[positions[3]]})
	}
	switch {
	case nat64.Contains(addr), compatible.Contains(addr):
		return []netip.Addr{at(12, 13, 14, 15)}
	case nat64Local.Contains(addr): // the positions that RFC 6052 defines for prefixes of 48 to 96 bits
		return []netip.Addr{at(6, 7, 9, 10), at(7, 9, 10, 11), at(9, 10, 11, 12), at(12, 13, 14, 15)}
	case sixToFour.Contains(addr):
		return []netip.Addr{at(2, 3, 4, 5)}
	case teredo.Contains(addr): // the server, and the client with all bits inverted (RFC 4380)
		return []netip.Addr{at(4, 5, 6, 7), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	}
	return nil
}
