package vip

import (
	"net/netip"
	"testing"
)

func TestOwnerOfAnAddress(t *testing.T) {
	prefix := netip.MustParsePrefix
	o := NewOwners()
	o.Set("east", []netip.Prefix{prefix("243.0.0.0/16"), prefix("fd00:243::/112")})
	o.Set("west", []netip.Prefix{prefix("243.1.0.0/30")})
	check := func(want map[string]string) {
		t.Helper()
		for addr, owner := range want {
			if got := o.Of(ip(addr)); got != owner {
				t.Errorf("%s belongs to %q, want %q", addr, got, owner)
			}
		}
	}
	check(map[string]string{"243.0.255.1": "east", "fd00:243::7": "east", "243.1.0.2": "west", "243.1.0.4": "", "10.0.0.1": "", "fd01::1": ""})
	o.Set("east", nil)
	o.Set("fresh", []netip.Prefix{prefix("243.0.0.0/16")})
	check(map[string]string{"243.0.255.1": "fresh", "fd00:243::7": "", "243.1.0.2": "west"})
}
