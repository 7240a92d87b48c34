package corefile_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"pgregory.net/rapid"

	"github.com/seamark-dev/seamark/internal/dns/corefile"
)

func TestReverseZones(t *testing.T) {
	for text, want := range map[string][]string{
		"243.0.0.0/8":      {"243.in-addr.arpa"},
		"10.244.0.0/16":    {"244.10.in-addr.arpa"},
		"10.244.0.0/15":    {"244.10.in-addr.arpa", "245.10.in-addr.arpa"},
		"10.1.254.0/23":    {"254.1.10.in-addr.arpa", "255.1.10.in-addr.arpa"},
		"10.1.2.254/31":    {"254.2.1.10.in-addr.arpa", "255.2.1.10.in-addr.arpa"},
		"10.1.2.255/32":    {"255.2.1.10.in-addr.arpa"},
		"255.255.255.0/24": {"255.255.255.in-addr.arpa"},
		"fd00:243::/32":    {"3.4.2.0.0.0.d.f.ip6.arpa"},
		"fd00:243::/31":    {"2.4.2.0.0.0.d.f.ip6.arpa", "3.4.2.0.0.0.d.f.ip6.arpa"},
	} {
		if got := corefile.ReverseZones([]netip.Prefix{netip.MustParsePrefix(text).Masked()}); !slices.Equal(got, want) {
			t.Errorf("%s has the zones %v, want %v", text, got, want)
		}
	}
}

// An address is in a range exactly if its reverse name is in one of the range's zones.
func TestReverseZonesHoldTheRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.SampledFrom([]int{4, 16}).Draw(t, "bytes")
		raw := rapid.SliceOfN(rapid.Byte(), length, length).Draw(t, "range")
		addr, _ := netip.AddrFromSlice(raw)
		in := netip.PrefixFrom(addr, rapid.IntRange(1, length*8).Draw(t, "bits")).Masked()
		zones := corefile.ReverseZones([]netip.Prefix{in})
		if len(zones) > 128 {
			t.Fatalf("%s has %d zones", in, len(zones))
		}
		at := rapid.IntRange(0, length*8-1).Draw(t, "changed bit")
		raw[at/8] ^= 1 << (7 - at%8)
		other, _ := netip.AddrFromSlice(raw)
		for _, probe := range []netip.Addr{addr, other} {
			name, err := dns.ReverseAddr(probe.String())
			if err != nil {
				t.Fatal(err)
			}
			held := slices.ContainsFunc(zones, func(z string) bool { return strings.HasSuffix(name, "."+z+".") || name == z+"." })
			if held != in.Contains(probe) {
				t.Fatalf("%s in %s: %v, in the zones %v: %v", probe, in, in.Contains(probe), zones, held)
			}
		}
	})
}
