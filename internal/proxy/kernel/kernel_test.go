package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

var testRanges = []netip.Prefix{netip.MustParsePrefix("243.0.0.0/8"), netip.MustParsePrefix("fd00:243::/48")}

// Tests with traffic and the real kernel are in test/integration/proxy.

func TestLayoutIsTheSameEachTime(t *testing.T) {
	a, b := newLayout(MasqueradeHost, testRanges), newLayout(MasqueradeHost, testRanges)
	if a.fingerprintChain.Name != b.fingerprintChain.Name || !strings.HasPrefix(a.fingerprintChain.Name, "layout-") {
		t.Errorf("%s and %s: each start would replace the table", a.fingerprintChain.Name, b.fingerprintChain.Name)
	}
	// One more rule is another layout.
	a.addRule(a.chains[0], a.families[0].dispatch())
	if name := a.fingerprint(); "layout-"+name == b.fingerprintChain.Name {
		t.Errorf("another layout has the same fingerprint %s", name)
	}
	if name := newLayout(MasqueradeHost, testRanges[:1]).fingerprintChain.Name; name == b.fingerprintChain.Name {
		t.Error("other ranges have the same fingerprint")
	}
	for _, policy := range []Masquerade{MasqueradeNone, MasqueradeAll} {
		if name := newLayout(policy, testRanges).fingerprintChain.Name; name == b.fingerprintChain.Name {
			t.Errorf("masquerade %s has the same fingerprint as %s", policy, MasqueradeHost)
		}
	}
}

// The kernel has sixteen registers of four bytes and refuses a rule that uses a seventeenth.
func TestRegistersSuffice(t *testing.T) {
	l := newLayout(MasqueradeHost, testRanges)
	for _, f := range l.families {
		if last := f.regEndpointPort() - reg(0); last > 15 {
			t.Errorf("family %s uses register %d", f.suffix, last)
		}
	}
}

// The kernel allows 255 characters in a chain's name; users read them in `nft list ruleset`.
func TestClassChains(t *testing.T) {
	l := newLayout(MasqueradeHost, testRanges)
	for want, class := range map[string]ruleset.Class{
		"pick4-3": {Count: 3}, "pick6-32767": {IPv6: true, Count: ruleset.MaxEndpoints}, "keep4-3-10800s": {Count: 3, Affinity: 10800},
	} {
		if got := l.classChain(class).Name; got != want {
			t.Errorf("%+v is chain %s, want %s", class, got, want)
		}
	}
}

func TestMasqueradePolicies(t *testing.T) {
	for _, policy := range []Masquerade{MasqueradeNone, MasqueradeHost, MasqueradeAll} {
		if err := policy.Validate(); err != nil {
			t.Error(err)
		}
	}
	if Masquerade("on").Validate() == nil {
		t.Error("a policy that does not exist is valid")
	}
}

// udpFlow is a message of the kernel's list of tracked connections.
var (
	udpFlow = []byte{
		2, 0, 0, 0, // family, version
		52, 0, 1, 0x80, // CTA_TUPLE_ORIG
		20, 0, 1, 0x80, 8, 0, 1, 0, 10, 0, 0, 1, 8, 0, 2, 0, 243, 0, 0, 1, // addresses
		28, 0, 2, 0x80, 5, 0, 1, 0, 17, 0, 0, 0, 6, 0, 2, 0, 4, 0, 0, 0, 6, 0, 3, 0, 0, 53, 0, 0, // ports
		52, 0, 2, 0x80, // CTA_TUPLE_REPLY
		20, 0, 1, 0x80, 8, 0, 1, 0, 10, 0, 0, 2, 8, 0, 2, 0, 10, 0, 0, 1,
		28, 0, 2, 0x80, 5, 0, 1, 0, 17, 0, 0, 0, 6, 0, 2, 0, 20, 233, 0, 0, 6, 0, 3, 0, 4, 0, 0, 0,
	}
	parsedUDPFlow = ruleset.Flow{
		Frontend: ruleset.Frontend{VIP: netip.MustParseAddr("243.0.0.1"), Protocol: ruleset.UDP, Port: 53},
		Endpoint: netip.MustParseAddrPort("10.0.0.2:5353"),
	}
)

// Without a status a connection counts as answered: established connections are not deleted.
func TestParseFlowStatus(t *testing.T) {
	for _, test := range []struct {
		name       string
		status     []byte
		unanswered bool
	}{
		{"no status", nil, false},
		{"confirmed, translated", []byte{8, 0, 3, 0, 0, 0, 1, 0xa8}, true},
		{"answered too", []byte{8, 0, 3, 0, 0, 0, 1, 0xaa}, false},
		{"two bytes", []byte{6, 0, 3, 0, 0, 0}, false},
	} {
		want := parsedUDPFlow
		want.Unanswered = test.unanswered
		if flow, ok := parseFlow(slices.Concat(udpFlow, test.status)); !ok || flow != want {
			t.Errorf("%s: parsed %+v, %t", test.name, flow, ok)
		}
	}
}

// A message that is cut off anywhere is no reason to crash.
func TestParseFlowOfShortMessages(t *testing.T) {
	for n := range udpFlow {
		if flow, ok := parseFlow(udpFlow[:n]); ok && flow != parsedUDPFlow {
			t.Errorf("%d bytes give %+v", n, flow)
		}
	}
}
