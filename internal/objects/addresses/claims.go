package addresses

import (
	"net/netip"
	"slices"
	"time"
)

// Member is what decides which addresses a member of the clusterset may publish.
type Member struct {
	ID string
	// Admitted is when the broker's admin admitted the member.
	Admitted time.Time
	// Fixed are the ranges that the admin fixed for it, Published those that it says it has.
	Fixed, Published []netip.Prefix
	// Pods4 and Pods6 report whether it publishes ranges of pods of that family, so that its own
	// addresses are known.
	Pods4, Pods6 bool
	// Here reports whether these are ranges of the cluster itself that asks. Only the admin's word
	// outweighs them.
	Here bool
}

func (m *Member) knowsPods(addr netip.Addr) bool {
	if addr.Is4() {
		return m.Pods4
	}
	return m.Pods6
}

// olderThan orders members by their admission, as exports of the same age are ordered.
func (m *Member) olderThan(other *Member) bool {
	if m.Here || other.Here {
		return m.Here
	}
	if c := m.Admitted.Compare(other.Admitted); c != 0 {
		return c < 0
	}
	return m.ID < other.ID
}

// Claims finds out whether an address that one member publishes belongs to another. The cost of a
// question does not depend on the number of members. It is not safe for concurrent use.
type Claims struct {
	members map[string]*Member
	owners  map[netip.Prefix][]*Member
	// lengths counts the ranges of each prefix length: index 0 for IPv4, 1 for IPv6.
	lengths [2][129]int
}

// NewClaims returns Claims without members.
func NewClaims() *Claims {
	return &Claims{members: map[string]*Member{}, owners: map[netip.Prefix][]*Member{}}
}

// Set adds or replaces a member.
func (c *Claims) Set(m Member) {
	c.Remove(m.ID)
	c.members[m.ID] = &m
	for _, r := range m.ranges() {
		c.owners[r] = append(c.owners[r], &m)
		c.lengths[familyIndex(r.Addr())][r.Bits()]++
	}
}

// Remove removes a member.
func (c *Claims) Remove(id string) {
	m := c.members[id]
	if m == nil {
		return
	}
	delete(c.members, id)
	for _, r := range m.ranges() {
		c.lengths[familyIndex(r.Addr())][r.Bits()]--
		if c.owners[r] = slices.DeleteFunc(c.owners[r], func(o *Member) bool { return o == m }); len(c.owners[r]) == 0 {
			delete(c.owners, r)
		}
	}
}

// ranges returns the fixed and published ranges, each once.
func (m *Member) ranges() []netip.Prefix {
	all := slices.Concat(m.Fixed, m.Published)
	for i := range all {
		all[i] = all[i].Masked()
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

func familyIndex(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// WhyNot returns why a member may not publish an address, or "" if it may.
//
// What the admin fixed decides. Beyond that there is only what members say of themselves, and a
// compromised one may claim the ranges of another, to publish addresses in them or to have the
// honest ones refused. So of two members that both claim an address the one admitted first wins. A
// member whose own ranges are not known claims what it publishes.
func (c *Claims) WhyNot(id string, addr netip.Addr) string {
	publisher := c.members[id]
	if publisher == nil {
		return "is of a cluster that is no member"
	}
	if len(publisher.Fixed) > 0 {
		if Contain(publisher.Fixed, addr) {
			return ""
		}
		return "is outside the ranges that the broker's admin fixed for that cluster"
	}
	claims := !publisher.knowsPods(addr) || Contain(publisher.Published, addr)
	for _, owner := range c.ownersOf(addr) {
		switch {
		case owner == publisher:
		case Contain(owner.Fixed, addr):
			return "is inside the ranges that the broker's admin fixed for cluster " + owner.ID
		case owner.Here:
			return "is in the range of this cluster's own pods"
		case !claims || owner.olderThan(publisher):
			return "is inside the ranges of cluster " + owner.ID
		}
	}
	return ""
}

// ownersOf returns the members with a range that contains an address.
func (c *Claims) ownersOf(addr netip.Addr) []*Member {
	var out []*Member
	for bits, count := range c.lengths[familyIndex(addr)] {
		if count == 0 {
			continue
		}
		if r, err := addr.Prefix(bits); err == nil {
			out = append(out, c.owners[r]...)
		}
	}
	return out
}
