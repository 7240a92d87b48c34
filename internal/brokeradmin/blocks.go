package brokeradmin

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Block is an address block of a member.
type Block struct {
	Cluster string
	Prefix  netip.Prefix
}

// NextBlock returns the first block of the given prefix length in within that overlaps none of
// taken. ok is false when none is left, or when a block of that size does not fit at all.
func NextBlock(within netip.Prefix, bits int, taken []netip.Prefix) (block netip.Prefix, ok bool) {
	if bits < within.Bits() || bits > within.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	// In the order of their addresses, larger ones first, each taken block is looked at once.
	taken = slices.SortedFunc(slices.Values(taken), netip.Prefix.Compare)
	candidate := netip.PrefixFrom(within.Masked().Addr(), bits)
	for _, t := range taken {
		if !candidate.Overlaps(t) {
			continue // it ends before the candidate, or begins after it
		}
		// Continue after the larger of the two: the next block of this size begins at its end.
		obstacle := candidate
		if t.Bits() < bits {
			obstacle = t
		}
		next := netipx.PrefixLastIP(obstacle).Next()
		if !next.IsValid() || !within.Contains(next) {
			return netip.Prefix{}, false
		}
		candidate = netip.PrefixFrom(next, bits)
	}
	return candidate, true
}

// ChooseBlocks returns the blocks of a new member: the wanted ones, and the next free one of each
// family for which none is wanted. It fails, naming the free space, if a wanted block is outside
// the ranges or overlaps another member's.
func ChooseBlocks(settings v1alpha1.ClusterSetIPSettings, wanted []netip.Prefix, taken []Block) ([]netip.Prefix, error) {
	ranges, err := ParseRanges(settings.Ranges)
	if err != nil {
		return nil, err
	}
	for i, w := range wanted {
		if err := checkWanted(w, ranges, taken); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(wanted[:i], sameFamily(w)) {
			return nil, fmt.Errorf("two blocks of one address family are wanted (%s): name one per family", join(wanted))
		}
	}
	var blocks []netip.Prefix
	for i, r := range ranges {
		if slices.ContainsFunc(ranges[:i], sameFamily(r)) {
			continue // the family has its block
		}
		if i := slices.IndexFunc(wanted, sameFamily(r)); i >= 0 {
			blocks = append(blocks, wanted[i])
			continue
		}
		ofFamily := slices.DeleteFunc(slices.Clone(ranges), func(other netip.Prefix) bool { return !sameFamily(r)(other) })
		block, err := nextBlockOf(ofFamily, blockBits(settings.BlockPrefixLengths, r), taken)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// nextBlockOf returns the first free block of the ranges of one family.
func nextBlockOf(ranges []netip.Prefix, bits int, taken []Block) (netip.Prefix, error) {
	free := make([]string, len(ranges))
	for i, r := range ranges {
		if block, ok := NextBlock(r, bits, prefixes(taken)); ok {
			return block, nil
		}
		free[i] = describeFree(r, taken)
	}
	return netip.Prefix{}, fmt.Errorf("no free /%d block is left (%s): add a range (seamark broker deploy --clusterset-ip-cidr-range "+
		"with all ranges), remove members that are gone (seamark cluster list, seamark cluster remove ID), or choose a smaller block "+
		"with --clusterset-ip-cidr", bits, strings.Join(free, "; "))
}

func sameFamily(p netip.Prefix) func(netip.Prefix) bool {
	return func(other netip.Prefix) bool { return other.Addr().Is4() == p.Addr().Is4() }
}

func checkWanted(w netip.Prefix, ranges []netip.Prefix, taken []Block) error {
	if w.Masked() != w {
		return fmt.Errorf("%s has address bits beyond its prefix length: write %s", w, w.Masked())
	}
	i := slices.IndexFunc(ranges, func(r netip.Prefix) bool { return r.Bits() <= w.Bits() && r.Contains(w.Addr()) })
	if i < 0 {
		free := make([]string, len(ranges))
		for j, r := range ranges {
			free[j] = describeFree(r, taken)
		}
		return fmt.Errorf("the block %s does not lie in the clusterset's range (%s): %s", w, join(ranges), strings.Join(free, "; "))
	}
	for _, t := range taken {
		if t.Prefix.Overlaps(w) {
			return fmt.Errorf("the block %s overlaps %s of cluster %s: %s", w, t.Prefix, t.Cluster, describeFree(ranges[i], taken))
		}
	}
	return nil
}

// ParseRanges parses address ranges. It fails on a range that is not in canonical form and on
// ranges that overlap.
func ParseRanges[S ~string](texts []S) ([]netip.Prefix, error) {
	ranges := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := netip.ParsePrefix(string(text))
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range such as 243.0.0.0/16 or fd00:243::/112", text)
		}
		if p.Addr().Is4In6() {
			return nil, fmt.Errorf("%s is an IPv4 range in IPv6 form: write it as IPv4", p)
		}
		if p.Masked() != p {
			return nil, fmt.Errorf("%s has address bits beyond its prefix length: write %s", p, p.Masked())
		}
		if i := slices.IndexFunc(ranges, p.Overlaps); i >= 0 {
			return nil, fmt.Errorf("%s overlaps %s: name ranges that have no address in common", p, ranges[i])
		}
		ranges = append(ranges, p)
	}
	return ranges, nil
}

func blockBits(lengths v1alpha1.BlockPrefixLengths, r netip.Prefix) int {
	if r.Addr().Is4() {
		return int(cmp.Or(lengths.IPv4, defaultBlockIPv4))
	}
	return int(cmp.Or(lengths.IPv6, defaultBlockIPv6))
}

// describeFree lists free blocks of a range, the largest first. A few are enough to choose from.
func describeFree(r netip.Prefix, taken []Block) string {
	var set netipx.IPSetBuilder
	set.AddPrefix(r)
	for _, t := range taken {
		set.RemovePrefix(t.Prefix)
	}
	free, err := set.IPSet()
	if err != nil {
		return fmt.Sprintf("the free space of %s is unknown", r)
	}
	pieces := free.Prefixes()
	if len(pieces) == 0 {
		return "nothing of " + r.String() + " is free"
	}
	slices.SortStableFunc(pieces, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	const listed = 4
	text := "free in " + r.String() + ": " + join(pieces[:min(listed, len(pieces))])
	if len(pieces) > listed {
		text += fmt.Sprintf(" and %d smaller pieces", len(pieces)-listed)
	}
	return text
}

// blocksOf returns the blocks of all members. A block that cannot be parsed is an error, because it
// might be handed out twice.
func blocksOf(clusters []v1alpha1.Cluster) ([]Block, error) {
	var blocks []Block
	for i := range clusters {
		for _, text := range clusters[i].Spec.ClusterSetIPBlocks {
			p, err := netip.ParsePrefix(string(text))
			if err != nil {
				return nil, fmt.Errorf("cluster %s has the block %q, which is not an address range: correct it first", clusters[i].Name, text)
			}
			blocks = append(blocks, Block{Cluster: clusters[i].Name, Prefix: p})
		}
	}
	return blocks, nil
}

func prefixes(blocks []Block) []netip.Prefix {
	out := make([]netip.Prefix, len(blocks))
	for i, b := range blocks {
		out[i] = b.Prefix
	}
	return out
}

func cidrs(ps []netip.Prefix) []v1alpha1.CIDR {
	out := make([]v1alpha1.CIDR, len(ps))
	for i, p := range ps {
		out[i] = v1alpha1.CIDR(p.String())
	}
	return out
}

func join[T fmt.Stringer](items []T) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.String()
	}
	return strings.Join(texts, ", ")
}
