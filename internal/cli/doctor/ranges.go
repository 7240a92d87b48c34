package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/objects"
)

// overlap returns the first two ranges that overlap, as text; empty when none do.
func overlap(a, b []netip.Prefix) string {
	for _, x := range a {
		for _, y := range b {
			switch {
			case !x.Overlaps(y):
			case x == y:
				return x.String()
			default:
				return fmt.Sprintf("%s and %s", x, y)
			}
		}
	}
	return ""
}

// checkRanges compares the ranges that the members publish.
func checkRanges(f *Facts) []Result {
	if f.Broker.Problem != "" {
		return []Result{skip("the broker cannot be read").at("broker")}
	}
	var out []Result
	known, unknown := 0, []string{}
	for i := range f.Broker.Members {
		a := &f.Broker.Members[i]
		if len(a.Status.PodCIDRs) == 0 {
			unknown = append(unknown, a.Name)
		} else {
			known++
		}
		for j := i + 1; j < len(f.Broker.Members); j++ {
			out = append(out, compare(a, &f.Broker.Members[j])...)
		}
	}
	if len(out) == 0 && known > 1 {
		out = append(out, pass("no overlap between the %d members whose pod ranges are known", known).at("broker"))
	}
	if len(unknown) > 0 {
		out = append(out, skip("the pod ranges of %s are not known: their nodes have none in spec.podCIDRs",
			strings.Join(unknown, ", ")).at("broker"))
	}
	return out
}

func compare(a, b *Member) (out []Result) {
	pods, services := objects.ParsePrefixes(a.Status.PodCIDRs), objects.ParsePrefixes(a.Status.ServiceCIDRs)
	otherPods, otherServices := objects.ParsePrefixes(b.Status.PodCIDRs), objects.ParsePrefixes(b.Status.ServiceCIDRs)
	where := a.Name + " and " + b.Name
	if both := overlap(pods, otherPods); both != "" {
		out = append(out, fail("give one of the clusters another pod range, or connect them with a network that translates addresses: "+
			"pods with the same address cannot reach each other", "their pods overlap: %s", both).at(where))
	}
	if both := overlap(pods, otherServices); both != "" {
		out = append(out, fail("give one of the clusters another range", "pods of %s overlap Services of %s: %s", a.Name, b.Name, both).at(where))
	}
	if both := overlap(otherPods, services); both != "" {
		out = append(out, fail("give one of the clusters another range", "pods of %s overlap Services of %s: %s", b.Name, a.Name, both).at(where))
	}
	if both := overlap(services, otherServices); both != "" {
		out = append(out, warn("nothing, unless services are exported in classic mode: that needs ClusterIPs that differ",
			"their Services overlap: %s", both).at(where))
	}
	return out
}

// checkGrants reports records that importers ignore. A running agent withdraws its own when its
// grants are narrowed, so what is left is of an agent that does not run, or of an intruder.
func checkGrants(f *Facts) []Result {
	if f.Broker.Problem != "" {
		return []Result{skip("the broker cannot be read").at("broker")}
	}
	var out []Result
	for _, id := range slices.Sorted(maps.Keys(f.Broker.Ignored)) {
		services := f.Broker.Ignored[id]
		fix := fmt.Sprintf("allow them (seamark broker invite %s --renew --allow-namespaces …, or spec.limits of its Cluster), "+
			"or see why its agent does not withdraw them; "+
			"if its credential may be stolen: seamark broker invite %s --renew --revoke", id, id)
		if f.Broker.member(id) == nil {
			fix = fmt.Sprintf("delete what is left of it: seamark cluster remove %s", id)
		}
		out = append(out, warn(fix, "importers ignore %s from %s, which the broker's admin does not grant it: %s",
			text.Plural(len(services), "service"), id, firstNames(services)).at(id))
	}
	if len(out) == 0 {
		out = append(out, pass("all of it is granted").at("broker"))
	}
	return out
}

// checkHeld reports withdrawals that members hold. It says nothing where there is none.
func checkHeld(f *Facts) []Result {
	var out []Result
	for _, id := range slices.Sorted(maps.Keys(f.Broker.Held)) {
		services := f.Broker.Held[id]
		out = append(out, warn(explain.WithdrawalCure(id, f.Broker.Namespace),
			"most exports of %s are gone there, and its agent saw no user delete them: it still publishes %s for %s: %s",
			id, text.Plural(len(services), "service"), duration.HumanDuration(objects.WithdrawalHold), firstNames(services)).at(id))
	}
	return append(out, each(f, func(c *Cluster) Result {
		if len(c.HeldImports) == 0 {
			return Result{}
		}
		return warn("seamark explain SERVICE -n NAMESPACE names the clusters: see why their agents do not publish again",
			"the broker has lost most records of a cluster: %s kept for %s: %s", text.Plural(len(c.HeldImports), "import"),
			duration.HumanDuration(objects.WithdrawalHold), firstNames(c.HeldImports))
	})...)
}

// checkClusterSetIPRanges compares the ranges of clusterset IPs with those of pods and Services,
// and the members' blocks with each other.
func checkClusterSetIPRanges(f *Facts) []Result {
	if f.Broker.Problem != "" || f.Broker.Set == nil {
		return []Result{skip("the broker cannot be read").at("broker")}
	}
	ranges := objects.ParsePrefixes(f.Broker.Set.Spec.ClusterSetIP.Ranges)
	const fix = "deploy the broker with another --clusterset-ip-cidr-range"
	var out []Result
	for i := range f.Broker.Members {
		m := &f.Broker.Members[i]
		if both := overlap(ranges, objects.ParsePrefixes(m.Status.PodCIDRs)); both != "" {
			out = append(out, fail(fix, "clusterset IPs overlap pods: %s", both).at(m.Name))
		}
		if both := overlap(ranges, objects.ParsePrefixes(m.Status.ServiceCIDRs)); both != "" {
			out = append(out, fail(fix, "clusterset IPs overlap Services: %s", both).at(m.Name))
		}
		for _, block := range objects.ParsePrefixes(m.Spec.ClusterSetIPBlocks) {
			if overlap([]netip.Prefix{block}, ranges) == "" {
				out = append(out, fail("the broker's admin invites the cluster anew",
					"its block %s lies outside the clusterset's ranges: importers reject its clusterset IPs", block).at(m.Name))
			}
		}
	}
	out = append(out, sharedBlocks(f.Broker.Members)...)
	if len(out) == 0 {
		out = append(out, pass("%s: no overlap", joinPrefixes(ranges)).at("broker"))
	}
	return out
}

// sharedBlocks finds members that allocate from the same addresses. Sorted by their first address,
// larger ones first, a block overlaps only those before it that reach as far.
func sharedBlocks(members []Member) (out []Result) {
	type owned struct {
		prefix netip.Prefix
		member string
	}
	var blocks []owned
	for i := range members {
		for _, p := range objects.ParsePrefixes(members[i].Spec.ClusterSetIPBlocks) {
			blocks = append(blocks, owned{p.Masked(), members[i].Name})
		}
	}
	slices.SortFunc(blocks, func(a, b owned) int {
		return cmp.Or(a.prefix.Compare(b.prefix), cmp.Compare(a.member, b.member))
	})
	var around []owned // the blocks that contain the one that is looked at
	for _, b := range blocks {
		around = slices.DeleteFunc(around, func(a owned) bool { return !a.prefix.Overlaps(b.prefix) })
		for _, a := range around {
			if a.member != b.member {
				out = append(out, fail("the broker's admin removes one of the clusters and invites it anew, which allocates another block",
					"they allocate from the same block: %s and %s", a.prefix, b.prefix).at(min(a.member, b.member)+" and "+max(a.member, b.member)))
			}
		}
		around = append(around, b)
	}
	return out
}

func joinPrefixes(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// nearlyFull is the share of a block in use from which the check warns.
const nearlyFull = 0.9

func checkPool(f *Facts) []Result {
	if f.Broker.Problem != "" {
		return []Result{skip("the broker cannot be read").at("broker")}
	}
	used := slices.Clone(f.Broker.Used)
	slices.SortFunc(used, netip.Addr.Compare)
	var out []Result
	for i := range f.Broker.Members {
		m := &f.Broker.Members[i]
		blocks := objects.ParsePrefixes(m.Spec.ClusterSetIPBlocks)
		six := slices.DeleteFunc(slices.Clone(blocks), func(p netip.Prefix) bool { return p.Addr().Is4() })
		four := slices.DeleteFunc(blocks, func(p netip.Prefix) bool { return p.Addr().Is6() })
		out = append(out, append(poolOf(m.Name, four, used), poolOf(m.Name, six, used)...)...)
	}
	if len(out) == 0 {
		out = append(out, pass("%d in use", len(f.Broker.Used)).at("broker"))
	}
	return out
}

// poolOf checks the blocks of one family. used are all clusterset IPs in use, sorted.
func poolOf(member string, blocks []netip.Prefix, used []netip.Addr) []Result {
	inUse, size := PoolUse(blocks, used)
	fix := "unexport services that are not used, or have the broker's admin add a block (seamark cluster add-block " + member + ")"
	switch share := float64(inUse) / max(size, 1); {
	case len(blocks) == 0:
		return nil
	case share >= 1:
		return []Result{fail(fix, "all %d clusterset IPs of block %s are in use: new exports get none", inUse, joinPrefixes(blocks)).at(member)}
	case share >= nearlyFull:
		return []Result{warn(fix, "%d of %.0f clusterset IPs of block %s are in use", inUse, size, joinPrefixes(blocks)).at(member)}
	}
	return nil
}

// PoolUse returns how many clusterset IPs of some blocks are in use, and how many there are. used
// are all clusterset IPs in use, sorted.
func PoolUse(blocks []netip.Prefix, used []netip.Addr) (inUse int, size float64) {
	for _, block := range blocks {
		from, _ := slices.BinarySearchFunc(used, block.Masked().Addr(), netip.Addr.Compare)
		to, last := slices.BinarySearchFunc(used, netipx.PrefixLastIP(block), netip.Addr.Compare)
		if last {
			to++
		}
		inUse += to - from
		size += math.Exp2(float64(block.Addr().BitLen()-block.Bits())) - 2
	}
	return inUse, size
}
