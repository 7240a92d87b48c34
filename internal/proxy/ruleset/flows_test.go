package ruleset

import (
	"net/netip"
	"testing"
)

func TestStaleFlows(t *testing.T) {
	vip, current := netip.MustParseAddrPort("243.0.0.1:53"), netip.MustParseAddrPort("10.0.0.1:5353")
	lost := map[Frontend]struct{}{}
	for _, protocol := range []Protocol{TCP, UDP, SCTP} {
		lost[Frontend{VIP: vip.Addr(), Protocol: protocol, Port: vip.Port()}] = struct{}{}
	}
	var stale StaleFlows
	if !stale.Empty() {
		t.Error("nothing is not empty")
	}
	stale.Add(StaleFlows{VIPs: map[netip.Addr]struct{}{vip.Addr(): {}}})
	for range 2 {
		stale.Add(StaleFlows{Ranges: []netip.Prefix{netip.MustParsePrefix("244.0.0.0/8")}, LostEndpoints: lost})
	}
	if stale.Empty() || len(stale.Ranges) != 1 {
		t.Errorf("%+v", stale)
	}
	match := stale.Matcher(func(f Frontend) []netip.AddrPort {
		if _, ok := lost[f]; !ok {
			t.Errorf("asked for the endpoints of %s", f)
		}
		return []netip.AddrPort{current}
	})
	flow := func(protocol Protocol, to, endpoint string) Flow {
		d := netip.MustParseAddrPort(to)
		return Flow{Frontend: Frontend{VIP: d.Addr(), Protocol: protocol, Port: d.Port()}, Endpoint: netip.MustParseAddrPort(endpoint)}
	}
	unanswered := func(protocol Protocol, to, endpoint string) Flow {
		f := flow(protocol, to, endpoint)
		f.Unanswered = true
		return f
	}
	for _, test := range []struct {
		name string
		flow Flow
		want bool
	}{
		{"to a current endpoint", flow(UDP, "243.0.0.1:53", "10.0.0.1:5353"), false},
		{"to a removed endpoint", flow(UDP, "243.0.0.1:53", "10.0.0.2:5353"), true},
		{"to another port of a current endpoint", flow(UDP, "243.0.0.1:53", "10.0.0.1:53"), true},
		{"never translated", flow(UDP, "243.0.0.1:53", "243.0.0.1:53"), true},
		{"never translated, TCP", flow(TCP, "243.0.0.1:80", "243.0.0.1:80"), true},
		{"never translated, in a range", flow(SCTP, "244.0.0.1:80", "244.0.0.1:80"), true},
		{"translated, in a range", flow(TCP, "244.0.0.1:80", "10.0.0.2:5353"), false},
		{"another port of the VIP", flow(UDP, "243.0.0.1:54", "10.0.0.2:5353"), false},
		{"to an address of another program", flow(UDP, "10.96.0.10:53", "10.0.0.2:5353"), false},
		{"never translated, of another program", flow(UDP, "10.96.0.10:53", "10.96.0.10:53"), false},
		{"UDP without answer", unanswered(UDP, "243.0.0.1:53", "10.0.0.2:5353"), true},
		{"UDP without answer, to a current endpoint", unanswered(UDP, "243.0.0.1:53", "10.0.0.1:5353"), false},
		{"TCP", flow(TCP, "243.0.0.1:53", "10.0.0.2:5353"), false},
		{"TCP without answer", unanswered(TCP, "243.0.0.1:53", "10.0.0.2:5353"), true},
		{"TCP without answer, to a current endpoint", unanswered(TCP, "243.0.0.1:53", "10.0.0.1:5353"), false},
		{"TCP without answer, another port of the VIP", unanswered(TCP, "243.0.0.1:54", "10.0.0.2:5353"), false},
		{"TCP without answer, of another program", unanswered(TCP, "10.96.0.10:53", "10.0.0.2:5353"), false},
		{"SCTP", flow(SCTP, "243.0.0.1:53", "10.0.0.2:5353"), false},
		{"SCTP without answer", unanswered(SCTP, "243.0.0.1:53", "10.0.0.2:5353"), true},
	} {
		if got := match(test.flow); got != test.want {
			t.Errorf("%s: stale is %t", test.name, got)
		}
	}
}
