package fault

import (
	"fmt"
	"net/netip"
	"strings"
)

// Table is the nftables table of faults in the network namespace of a node.
const Table = "seamark_sandbox_faults"

// Rule is what happens to packets that arrive at a node.
type Rule struct {
	// From and To are the sources and destinations of the packets; empty for any.
	From, To []netip.Prefix
	// Percent of the packets are dropped, all if it is 100.
	Percent float64
	// Via is the device to which the packets are handed over, if they are not dropped.
	Via string
}

// lossUnits is the precision of loss: hundredths of a percent.
const lossUnits = 100 * maxPercent

// Ruleset returns a script for nft that replaces all rules for packets that arrive on a device, in
// one transaction. Without rules it removes the table.
//
// The rules are in the ingress hook of the node that receives: senders see nothing but silence,
// as with a network that drops packets, and connection tracking, address translation and routing
// of the receiver do not see packets before they have arrived. Fragments and packets that the
// sender's kernel did not segment count as one packet.
//
// IPv6 finds neighbours with ICMPv6, which has no faults: the kernel would ignore a delayed answer,
// because it arrives on another device than the one that asked. IPv4 finds them with ARP, which
// these rules do not match.
//
// The table is declared first, because deleting a table that does not exist is an error (nft 1.0.6
// has no `destroy`).
func Ruleset(device string, rules []Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table netdev %[1]s\ndelete table netdev %[1]s\n", Table)
	if len(rules) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "table netdev %s {\n  chain arriving {\n    type filter hook ingress device %q priority filter\n", Table, device)
	b.WriteString("    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n")
	for _, r := range rules {
		for _, family := range []string{"ip", "ip6"} {
			if match, ok := r.match(family); ok {
				fmt.Fprintf(&b, "    %s%s\n", match, r.verdict())
			}
		}
	}
	b.WriteString("  }\n}\n")
	return b.String()
}

// match returns the expression for the packets of a family, and reports whether there are any.
func (r Rule) match(family string) (string, bool) {
	var b strings.Builder
	for _, side := range []struct {
		field    string
		prefixes []netip.Prefix
	}{{"saddr", r.From}, {"daddr", r.To}} {
		if len(side.prefixes) == 0 {
			continue
		}
		var texts []string
		for _, p := range side.prefixes {
			if p.Addr().Is6() == (family == "ip6") {
				texts = append(texts, p.String())
			}
		}
		if len(texts) == 0 {
			return "", false
		}
		fmt.Fprintf(&b, "%s %s { %s } ", family, side.field, strings.Join(texts, ", "))
	}
	return b.String(), b.Len() > 0
}

func (r Rule) verdict() string {
	switch {
	case r.Via != "":
		return fmt.Sprintf("fwd to %q", r.Via)
	case r.Percent < maxPercent:
		return fmt.Sprintf("numgen random mod %d < %.0f drop", lossUnits, r.Percent/maxPercent*lossUnits)
	}
	return "drop"
}
