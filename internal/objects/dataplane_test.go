package objects

import (
	"net/netip"
	"testing"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func TestParseDataPlane(t *testing.T) {
	for text, want := range map[string]v1alpha1.DataPlane{"": "service", "service": "service", "nftables": "nftables", "none": "none"} {
		if got, err := ParseDataPlane(text); err != nil || got.Name != want {
			t.Errorf("%q: %v, %v", text, got.Name, err)
		}
	}
	_, err := ParseDataPlane("ipvs")
	if want := `there is no data plane "ipvs": use service, nftables or none`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestUnusableAddress(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "", "fd00::1": "", "243.0.0.1": "", "8.8.8.8": "",
		"127.0.0.1": "is a loopback address", "::1": "is a loopback address",
		"169.254.169.254": "is a link-local address", "fe80::1": "is a link-local address",
		"224.0.0.1": "is a multicast address", "ff02::1": "is a multicast address",
		"0.0.0.0": "is unspecified", "::": "is unspecified", "255.255.255.255": "is the broadcast address",
		"::ffff:10.0.0.1": "is not in plain form", "fe80::1%eth0": "is not in plain form",
	} {
		if got := UnusableAddress(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
