package proxy

import (
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

func TestClaims(t *testing.T) {
	vip, other := netip.MustParseAddr("243.0.0.1"), netip.MustParseAddr("243.0.0.2")
	old, young := types.NamespacedName{Name: "old"}, types.NamespacedName{Name: "young"}
	c := vipClaims{}
	if others := c.set(young, time.Unix(2, 0), nil, []netip.Addr{vip, other}); len(others) != 0 {
		t.Errorf("a first claim affects %v", others)
	}
	if others := c.set(old, time.Unix(1, 0), nil, []netip.Addr{vip}); len(others) != 1 || others[0] != young {
		t.Errorf("the claim of the older service affects %v", others)
	}
	service := ruleset.Service{VIPs: []netip.Addr{vip, other}, Ports: []ruleset.Port{
		{Frontend: ruleset.Frontend{VIP: vip, Protocol: ruleset.TCP, Port: 80}},
		{Frontend: ruleset.Frontend{VIP: other, Protocol: ruleset.TCP, Port: 80}},
	}}
	got := c.ownedPart(young, service)
	if len(got.VIPs) != 1 || got.VIPs[0] != other || len(got.Ports) != 1 || got.Ports[0].VIP != other {
		t.Errorf("the younger service keeps %+v", got)
	}
	if len(service.VIPs) != 2 || len(service.Ports) != 2 {
		t.Error("the service itself was changed")
	}
	c.set(old, time.Time{}, []netip.Addr{vip}, nil)
	if c.owner(vip) != young {
		t.Errorf("after the older service is removed, %s has the VIP", c.owner(vip))
	}
	c.set(young, time.Time{}, []netip.Addr{vip, other}, nil)
	if len(c) != 0 {
		t.Errorf("left behind: %v", c)
	}
}

// All nodes must choose the same of two objects of the same age.
func TestClaimsOfTheSameAge(t *testing.T) {
	vip := netip.MustParseAddr("243.0.0.1")
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	for _, order := range [][]types.NamespacedName{{a, b}, {b, a}} {
		c := vipClaims{}
		for _, name := range order {
			c.set(name, time.Unix(1, 0), nil, []netip.Addr{vip})
		}
		if c.owner(vip) != a {
			t.Errorf("claimed in the order %v, %s has the VIP", order, c.owner(vip))
		}
	}
}
