package kernel

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// Tests with traffic and the real kernel are in test/integration/proxy.

func TestLayoutIsTheSameEachTime(t *testing.T) {
	a, err := newLayout()
	if err != nil {
		t.Fatal(err)
	}
	b, err := newLayout()
	if err != nil {
		t.Fatal(err)
	}
	if a.fingerprintChain.Name != b.fingerprintChain.Name || !strings.HasPrefix(a.fingerprintChain.Name, "layout-") {
		t.Errorf("%s and %s: each start would replace the table", a.fingerprintChain.Name, b.fingerprintChain.Name)
	}
	// One more rule is another layout.
	a.addRule(a.chains[0], a.families[0].dispatch())
	if name, err := a.fingerprint(); err != nil || "layout-"+name == b.fingerprintChain.Name {
		t.Errorf("another layout has the same fingerprint %s: %v", name, err)
	}
}

// The kernel has sixteen registers of four bytes and refuses a rule that uses a seventeenth.
func TestRegistersSuffice(t *testing.T) {
	l, err := newLayout()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range l.families {
		if last := f.regEndpointPort() - reg(0); last > 15 {
			t.Errorf("family %s uses register %d", f.suffix, last)
		}
	}
}

// The kernel allows 255 characters in a chain's name; users read them in `nft list ruleset`.
func TestClassChains(t *testing.T) {
	l, err := newLayout()
	if err != nil {
		t.Fatal(err)
	}
	for want, class := range map[string]ruleset.Class{
		"pick4-3": {Count: 3}, "pick6-32767": {IPv6: true, Count: ruleset.MaxEndpoints}, "keep4-3-10800s": {Count: 3, Affinity: 10800},
	} {
		if got := l.classChain(class).Name; got != want {
			t.Errorf("%+v is chain %s, want %s", class, got, want)
		}
	}
}

func TestStaleUDP(t *testing.T) {
	vip, current := netip.MustParseAddrPort("243.0.0.1:53"), netip.MustParseAddrPort("10.0.0.1:5353")
	stale := staleUDP{vip: {current: {}}}
	flow := func(protocol uint8, to, answers string) *netlink.ConntrackFlow {
		d, s := netip.MustParseAddrPort(to), netip.MustParseAddrPort(answers)
		return &netlink.ConntrackFlow{
			// The library returns IPv4 addresses in either form.
			Forward: netlink.IPTuple{Protocol: protocol, DstIP: net.ParseIP(d.Addr().String()), DstPort: d.Port()},
			Reverse: netlink.IPTuple{Protocol: protocol, SrcIP: s.Addr().AsSlice(), SrcPort: s.Port()},
		}
	}
	for _, test := range []struct {
		name string
		flow *netlink.ConntrackFlow
		want bool
	}{
		{"to a current endpoint", flow(17, "243.0.0.1:53", "10.0.0.1:5353"), false},
		{"to a removed endpoint", flow(17, "243.0.0.1:53", "10.0.0.2:5353"), true},
		{"to another port of a current endpoint", flow(17, "243.0.0.1:53", "10.0.0.1:53"), true},
		{"never translated", flow(17, "243.0.0.1:53", "243.0.0.1:53"), true},
		{"another port of the VIP", flow(17, "243.0.0.1:54", "10.0.0.2:5353"), false},
		{"to an address of another program", flow(17, "10.96.0.10:53", "10.0.0.2:5353"), false},
		{"TCP", flow(6, "243.0.0.1:53", "10.0.0.2:5353"), false},
	} {
		if got := stale.MatchConntrackFlow(test.flow); got != test.want {
			t.Errorf("%s: stale is %t", test.name, got)
		}
	}
}
