package addresses

import (
	"net/netip"
	"testing"
)

func TestUnusable(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "", "243.0.0.1": "", "fd00::1": "", "2001:db8::1": "",
		"::ffff:10.0.0.1": "is not in plain form", "fd00::1%eth0": "is not in plain form",
		"127.0.0.1": "is a loopback address", "::1": "is a loopback address",
		"169.254.169.254": "is a link-local address", "fe80::1": "is a link-local address",
		"224.0.0.1": "is a multicast address", "ff02::1": "is a multicast address",
		"0.0.0.0": "is unspecified", "::": "is unspecified",
		"255.255.255.255": "is the broadcast address",
	} {
		if got := Unusable(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
