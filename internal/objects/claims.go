package objects

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// A member must know which addresses of its blocks are in use, also by services of namespaces that
// it does not have. So records are labelled with the part of the address range that they claim an
// address from, and a member reads the records of the parts that its blocks lie in. The parts do
// not depend on who owns which block: a block may get another owner while its addresses are in use.

// claimParts are the lengths of the prefixes by which claims are labelled.
const (
	claimPartIPv4 = 16
	claimPartIPv6 = 112
)

// maxClaimParts is how many parts a selector names. A block of more is read with all claims.
const maxClaimParts = 128

// UnlabelledClaims selects the records of agents that do not label claims yet.
const UnlabelledClaims = "!" + v1alpha1.LabelClaimIPv4

// SetClaimLabels labels a record with what it claims. A record without a claim is labelled too, so
// that it differs from that of an earlier version.
func SetClaimLabels(r *v1alpha1.ExportRecord) {
	r.Labels[v1alpha1.LabelClaimIPv4] = ""
	delete(r.Labels, v1alpha1.LabelClaimIPv6)
	for _, addr := range ParseAddresses(r.Spec.ClusterSetIPs) {
		key, bits := claimPart(addr)
		if part, err := addr.Prefix(bits); err == nil {
			r.Labels[key] = claimValue(part)
		}
	}
}

// ClaimSelectors returns label selectors of the records that may claim addresses of the blocks: at
// most one for each family.
func ClaimSelectors(blocks []netip.Prefix) (selectors []string) {
	values := map[string]map[string]struct{}{}
	all := map[string]bool{}
	for _, block := range blocks {
		key, bits := claimPart(block.Addr())
		if values[key] == nil {
			values[key] = map[string]struct{}{}
		}
		parts := 1
		if block.Bits() < bits {
			parts = 1 << min(bits-block.Bits(), 30)
		}
		if parts > maxClaimParts {
			all[key] = true
			continue
		}
		part := netip.PrefixFrom(block.Addr(), bits).Masked()
		for range parts {
			values[key][claimValue(part)] = struct{}{}
			part = nextPart(part)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if all[key] || len(values[key]) > maxClaimParts {
			selectors = append(selectors, key)
			continue
		}
		selectors = append(selectors, fmt.Sprintf("%s in (%s)", key, strings.Join(slices.Sorted(maps.Keys(values[key])), ",")))
	}
	return selectors
}

func claimPart(addr netip.Addr) (label string, bits int) {
	if addr.Is4() {
		return v1alpha1.LabelClaimIPv4, claimPartIPv4
	}
	return v1alpha1.LabelClaimIPv6, claimPartIPv6
}

// claimValue returns a part as the value of a label: 243.0 or fd00-243-0-0-0-0-1.
func claimValue(part netip.Prefix) string {
	if part.Addr().Is4() {
		b := part.Addr().As4()
		return fmt.Sprintf("%d.%d", b[0], b[1])
	}
	b := part.Addr().As16()
	groups := make([]string, claimPartIPv6/16)
	for i := range groups {
		groups[i] = fmt.Sprintf("%x", binary.BigEndian.Uint16(b[2*i:]))
	}
	return strings.Join(groups, "-")
}

// nextPart returns the part after this one.
func nextPart(part netip.Prefix) netip.Prefix {
	b := part.Addr().AsSlice()
	for i := part.Bits()/8 - 1; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			break
		}
	}
	next, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(next, part.Bits())
}
