package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// vipClaims decides which service owns a VIP. Agents never allocate a VIP twice. If two objects
// have the same one nevertheless, the older object owns it on every node, and the other gets it
// when the older is deleted.
type vipClaims map[netip.Addr][]claimant

type claimant struct {
	service types.NamespacedName
	created time.Time
}

func (c vipClaims) owner(vip netip.Addr) types.NamespacedName {
	if len(c[vip]) == 0 {
		return types.NamespacedName{}
	}
	return c[vip][0].service
}

// set replaces the VIPs of a service and returns the other services whose VIPs may have a new
// owner.
func (c vipClaims) set(service types.NamespacedName, created time.Time, before, now []netip.Addr) []types.NamespacedName {
	var others []types.NamespacedName
	addOthers := func(vip netip.Addr) {
		for _, other := range c[vip] {
			if other.service != service {
				others = append(others, other.service)
			}
		}
	}
	for _, vip := range before {
		addOthers(vip)
		c[vip] = slices.DeleteFunc(c[vip], func(other claimant) bool { return other.service == service })
		if len(c[vip]) == 0 {
			delete(c, vip)
		}
	}
	for _, vip := range now {
		addOthers(vip)
		c[vip] = append(c[vip], claimant{service, created})
		slices.SortFunc(c[vip], func(a, b claimant) int {
			return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.service.String(), b.service.String()))
		})
	}
	return others
}

// ownedPart returns the part of a service that is on VIPs it owns.
func (c vipClaims) ownedPart(name types.NamespacedName, s ruleset.Service) ruleset.Service {
	lost := func(vip netip.Addr) bool { return c.owner(vip) != name }
	if !slices.ContainsFunc(s.VIPs, lost) {
		return s
	}
	return ruleset.Service{
		Hairpin: s.Hairpin,
		VIPs:    slices.DeleteFunc(slices.Clone(s.VIPs), lost),
		Ports:   slices.DeleteFunc(slices.Clone(s.Ports), func(p ruleset.Port) bool { return lost(p.VIP) }),
	}
}
