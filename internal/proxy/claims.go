package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// claims settles who owns a VIP. The agents never give one to two services; should two objects name the same all the same, the older
// one has it on every node, and the other gets it when the older is gone.
type vipClaims map[netip.Addr][]claimant

type claimant struct {
	service types.NamespacedName
	since   time.Time
}

func (c vipClaims) owner(vip netip.Addr) types.NamespacedName {
	if len(c[vip]) == 0 {
		return types.NamespacedName{}
	}
	return c[vip][0].service
}

// set replaces the VIPs that a service claims and returns the other services that this may concern.
func (c vipClaims) set(service types.NamespacedName, since time.Time, before, now []netip.Addr) []types.NamespacedName {
	var others []types.NamespacedName
	note := func(vip netip.Addr) {
		for _, other := range c[vip] {
			if other.service != service {
				others = append(others, other.service)
			}
		}
	}
	for _, vip := range before {
		note(vip)
		c[vip] = slices.DeleteFunc(c[vip], func(other claimant) bool { return other.service == service })
		if len(c[vip]) == 0 {
			delete(c, vip)
		}
	}
	for _, vip := range now {
		note(vip)
		c[vip] = append(c[vip], claimant{service, since})
		slices.SortFunc(c[vip], func(a, b claimant) int {
			return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.service.String(), b.service.String()))
		})
	}
	return others
}

// owned is the part of a service that is on its own VIPs.
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
