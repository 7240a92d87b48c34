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
		"168.63.129.16":   "is a metadata address of a cloud", "100.100.100.200": "is a metadata address of a cloud",
		"fd00:ec2::254": "is a metadata address of a cloud", "fd20:ce::254": "is a metadata address of a cloud",
		"64:ff9b::a9fe:a9fe":                   "stands for 169.254.169.254, which is a link-local address",
		"64:ff9b::10.0.0.1":                    "",
		"64:ff9b:1::a83f:8110":                 "stands for 168.63.129.16, which is a metadata address of a cloud",
		"64:ff9b:1:a9fe:a9:fe00::":             "stands for 169.254.169.254, which is a link-local address",
		"2002:a9fe:a9fe::1":                    "stands for 169.254.169.254, which is a link-local address",
		"2002:0a00:0001::1":                    "",
		"2001:0:4136:e378:8000:63bf:5601:5601": "stands for 169.254.169.254, which is a link-local address",
		"::a9fe:a9fe":                          "stands for 169.254.169.254, which is a link-local address",
		"64:ff9b::127.0.0.1":                   "stands for 127.0.0.1, which is a loopback address",
	} {
		if got := Unusable(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
