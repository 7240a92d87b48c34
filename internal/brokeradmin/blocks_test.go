package brokeradmin

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func TestNextBlock(t *testing.T) {
	p := netip.MustParsePrefix
	for name, tc := range map[string]struct {
		within netip.Prefix
		bits   int
		taken  []netip.Prefix
		want   string
	}{
		"first of an empty range":          {p("243.0.0.0/8"), 16, nil, "243.0.0.0/16"},
		"after those taken, in any order":  {p("243.0.0.0/8"), 16, []netip.Prefix{p("243.1.0.0/16"), p("243.0.0.0/16")}, "243.2.0.0/16"},
		"a gap is used again":              {p("243.0.0.0/8"), 16, []netip.Prefix{p("243.0.0.0/16"), p("243.2.0.0/16")}, "243.1.0.0/16"},
		"past a larger block":              {p("243.0.0.0/8"), 16, []netip.Prefix{p("243.0.0.0/10")}, "243.64.0.0/16"},
		"past a smaller block":             {p("243.0.0.0/8"), 16, []netip.Prefix{p("243.0.7.0/24")}, "243.1.0.0/16"},
		"the last one":                     {p("10.0.0.0/30"), 31, []netip.Prefix{p("10.0.0.0/31")}, "10.0.0.2/31"},
		"none left":                        {p("10.0.0.0/30"), 31, []netip.Prefix{p("10.0.0.0/31"), p("10.0.0.2/31")}, ""},
		"all taken by one":                 {p("10.0.0.0/24"), 28, []netip.Prefix{p("10.0.0.0/8")}, ""},
		"a range at the end of all":        {p("255.255.255.0/24"), 25, []netip.Prefix{p("255.255.255.0/25"), p("255.255.255.128/25")}, ""},
		"too large for the range":          {p("10.0.0.0/24"), 16, nil, ""},
		"IPv6, of which there are 2^64":    {p("fd00:243::/48"), 112, []netip.Prefix{p("fd00:243::/112")}, "fd00:243::1:0/112"},
		"another family does not count":    {p("243.0.0.0/8"), 16, []netip.Prefix{p("fd00:243::/112")}, "243.0.0.0/16"},
		"a block outside does not count":   {p("243.0.0.0/8"), 16, []netip.Prefix{p("10.0.0.0/8")}, "243.0.0.0/16"},
		"the whole range as the one block": {p("10.0.0.0/24"), 24, nil, "10.0.0.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := NextBlock(tc.within, tc.bits, tc.taken)
			if ok != (tc.want != "") || (ok && got.String() != tc.want) {
				t.Errorf("got %s (%t), want %q", got, ok, tc.want)
			}
		})
	}
}

// Every block that NextBlock returns lies in the range, has the requested size and overlaps none
// that is taken. It returns one as long as one is free.
func TestNextBlockNeverOverlapsAndNeverGivesUpEarly(t *testing.T) {
	within := netip.MustParsePrefix("10.0.0.0/24")
	rapid.Check(t, func(t *rapid.T) {
		const bits = 28
		var taken []netip.Prefix
		for range rapid.IntRange(0, 30).Draw(t, "taken") {
			addr := within.Addr().As4()
			addr[3] = rapid.Byte().Draw(t, "address")
			taken = append(taken, netip.PrefixFrom(netip.AddrFrom4(addr), rapid.IntRange(22, 32).Draw(t, "bits")).Masked())
		}
		free := 0
		for i := range 16 {
			candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i << 4)}), bits)
			if !overlapsAny(candidate, taken) {
				free++
			}
		}
		got, ok := NextBlock(within, bits, taken)
		if ok != (free > 0) {
			t.Fatalf("%d blocks are free, but NextBlock returns %t", free, ok)
		}
		if ok && (got.Bits() != bits || !within.Contains(got.Addr()) || overlapsAny(got, taken)) {
			t.Fatalf("%s is not a free block", got)
		}
	})
}

func overlapsAny(p netip.Prefix, taken []netip.Prefix) bool {
	for _, other := range taken {
		if p.Overlaps(other) {
			return true
		}
	}
	return false
}

func TestChooseBlocks(t *testing.T) {
	settings := v1alpha1.ClusterSetIPSettings{
		Ranges:             []v1alpha1.CIDR{"243.0.0.0/8", "fd00:243::/48"},
		BlockPrefixLengths: v1alpha1.BlockPrefixLengths{IPv4: 16, IPv6: 112},
	}
	taken := []Block{{"east", netip.MustParsePrefix("243.0.0.0/16")}, {"east", netip.MustParsePrefix("fd00:243::/112")}}
	for name, tc := range map[string]struct {
		wanted []string
		want   string
		err    []string
	}{
		"next of each":               {nil, "243.1.0.0/16, fd00:243::1:0/112", nil},
		"one chosen, the other next": {[]string{"243.9.0.0/24"}, "243.9.0.0/24, fd00:243::1:0/112", nil},
		"both chosen":                {[]string{"fd00:243::9:0/112", "243.9.0.0/16"}, "243.9.0.0/16, fd00:243::9:0/112", nil},
		"overlap names the cluster":  {[]string{"243.0.128.0/17"}, "", []string{"overlaps 243.0.0.0/16 of cluster east", "243.128.0.0/9"}},
		"outside names the free space": {[]string{"10.0.0.0/16"}, "", []string{
			"does not lie in the clusterset's range (243.0.0.0/8, fd00:243::/48)", "free in 243.0.0.0/8: 243.128.0.0/9",
		}},
		"larger than the range": {[]string{"0.0.0.0/0"}, "", []string{"does not lie"}},
		"two of one family":     {[]string{"243.9.0.0/16", "243.10.0.0/16"}, "", []string{"one per family"}},
	} {
		t.Run(name, func(t *testing.T) {
			var wanted []netip.Prefix
			for _, w := range tc.wanted {
				wanted = append(wanted, netip.MustParsePrefix(w))
			}
			got, err := ChooseBlocks(settings, wanted, taken)
			checkError(t, err, tc.err...)
			if join(got) != tc.want {
				t.Errorf("got %s, want %s", join(got), tc.want)
			}
		})
	}
	t.Run("a range was added", func(t *testing.T) {
		wider := settings
		wider.Ranges = append(slices.Clone(settings.Ranges), "242.0.0.0/15")
		full := append(slices.Clone(taken), Block{"west", netip.MustParsePrefix("243.0.0.0/8")}, Block{"west", netip.MustParsePrefix("242.0.0.0/16")})
		if got, err := ChooseBlocks(wider, nil, full); err != nil || join(got) != "242.1.0.0/16, fd00:243::1:0/112" {
			t.Errorf("got %s, %v", join(got), err)
		}
		full = append(full, Block{"north", netip.MustParsePrefix("242.1.0.0/16")})
		_, err := ChooseBlocks(wider, nil, full)
		checkError(t, err, "no free /16 block is left", "nothing of 243.0.0.0/8 is free; nothing of 242.0.0.0/15 is free",
			"--clusterset-ip-cidr-range")
	})
	t.Run("a thousand members by default", func(t *testing.T) {
		set, err := desiredClusterSet(nil, DeployOptions{})
		checkError(t, err)
		var taken []Block
		for i := range 1000 {
			got, err := ChooseBlocks(set.Spec.ClusterSetIP, nil, taken)
			if err != nil || len(got) != 2 {
				t.Fatalf("member %d gets %s, %v", i, join(got), err)
			}
			for _, b := range got {
				taken = append(taken, Block{"member", b})
			}
		}
	})
	t.Run("exhausted", func(t *testing.T) {
		small := v1alpha1.ClusterSetIPSettings{Ranges: []v1alpha1.CIDR{"10.0.0.0/24"}, BlockPrefixLengths: v1alpha1.BlockPrefixLengths{IPv4: 25}}
		_, err := ChooseBlocks(small, nil, []Block{{"a", netip.MustParsePrefix("10.0.0.0/25")}, {"b", netip.MustParsePrefix("10.0.0.128/26")}})
		checkError(t, err, "no free /25 block is left", "free in 10.0.0.0/24: 10.0.0.192/26", "seamark cluster remove ID", "--clusterset-ip-cidr")
	})
}

func TestRangesMustNotOverlap(t *testing.T) {
	_, err := ParseRanges([]string{"243.0.0.0/8", "fd00:243::/48", "243.7.0.0/16"})
	checkError(t, err, "243.7.0.0/16 overlaps 243.0.0.0/8")
	if got, err := ParseRanges([]string{"243.0.0.0/8", "242.0.0.0/8"}); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// checkError wants an error that says all the parts, or none when there are no parts.
func checkError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if len(parts) == 0 {
		if err != nil {
			t.Fatalf("unexpected error: %v", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("no error, want one that says %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}
