package corefile

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ReverseZones returns the reverse zones of ranges: zones of whole labels that together hold the
// addresses of the ranges and no others. A range whose end is not at a label has several zones: at
// most 128 for IPv4, 8 for IPv6.
func ReverseZones(ranges []netip.Prefix) []string {
	var zones []string
	for _, r := range ranges {
		step := 4 // bits of a label
		if r.Addr().Is4() {
			step = 8
		}
		bits := (r.Bits() + step - 1) / step * step
		for addr, ok := r.Masked().Addr(), true; ok && r.Contains(addr); addr, ok = following(addr, bits) {
			zones = append(zones, reverseZone(addr, bits))
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// reverseZone returns the reverse zone of the first bits of an address, which end at a label.
func reverseZone(addr netip.Addr, bits int) string {
	var labels []string
	if addr.Is4() {
		for _, b := range addr.AsSlice()[:bits/8] {
			labels = append(labels, strconv.Itoa(int(b)))
		}
		labels = append([]string{"arpa", "in-addr"}, labels...)
	} else {
		for _, b := range addr.AsSlice() {
			labels = append(labels, strconv.FormatUint(uint64(b>>4), 16), strconv.FormatUint(uint64(b&15), 16))
		}
		labels = append([]string{"arpa", "ip6"}, labels[:bits/4]...)
	}
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// following returns the address of the next range of this length; ok is false after the last one.
func following(addr netip.Addr, bits int) (next netip.Addr, ok bool) {
	raw := addr.AsSlice()
	carry := 1 << (7 - (bits+7)%8)
	for i := (bits - 1) / 8; i >= 0 && carry > 0; i-- {
		sum := int(raw[i]) + carry
		raw[i], carry = byte(sum), sum>>8
	}
	next, _ = netip.AddrFromSlice(raw)
	return next, carry == 0 && bits > 0
}
