package zone

import (
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

var options = Options{Name: "clusterset.local.", TTL: 5}

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

// newTestZone returns a zone with a service of each kind in namespace ns, and one of a thousand
// endpoints.
func newTestZone(t testing.TB) *Zone {
	t.Helper()
	z := New(options)
	http := []Port{{"http", "TCP", 80}}
	big := &Slice{Cluster: "west", Ports: http}
	for i := range 1000 {
		big.Endpoints = append(big.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}),
			Hostname: fmt.Sprintf("pod-%d", i)})
	}
	for _, s := range []Service{
		{Namespace: "ns", Name: "vip", IPs: []netip.Addr{ip("243.0.0.1"), ip("fd00::1")}, ReverseIPs: []netip.Addr{ip("243.0.0.1")}, Ports: http},
		{Namespace: "ns", Name: "db", Kind: Headless,
			Slices: []*Slice{{Cluster: "west", Ports: http, Endpoints: []Endpoint{{Addr: ip("10.0.0.1"), Hostname: "db-0"}}}}},
		{Namespace: "ns", Name: "old", Kind: Classic, Ports: http, Slices: []*Slice{
			{Cluster: "west", Weight: 1, Endpoints: []Endpoint{{Addr: ip("10.96.0.1")}}},
			{Cluster: "east", Weight: 3, Endpoints: []Endpoint{{Addr: ip("10.97.0.1")}}},
		}},
		{Namespace: "ns", Name: "big", Kind: Headless, Slices: []*Slice{big}},
	} {
		z.Set(Key(s.Namespace, s.Name), Build(options, Locality{}, s))
	}
	return z
}

func query(z *Zone, name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	return z.Reply(m, Lower(name), 1232)
}

func TestParse(t *testing.T) {
	const zone = "clusterset.local."
	for name, want := range map[string]parsedName{
		"clusterset.local.":                    {kind: nameApex},
		"dns-version.clusterset.local.":        {kind: nameVersion},
		"ns.dns.clusterset.local.":             {kind: nameServer},
		"dns.clusterset.local.":                {kind: nameServerParent},
		"svc.clusterset.local.":                {kind: nameServices},
		"ns.svc.clusterset.local.":             {kind: nameNamespace, namespace: "ns"},
		"web.ns.svc.clusterset.local.":         {kind: nameService, namespace: "ns", key: "web.ns"},
		"a.web.ns.svc.clusterset.local.":       {kind: nameBelowService, namespace: "ns", key: "web.ns", left: "a"},
		"a.b.c.web.ns.svc.clusterset.local.":   {kind: nameBelowService, namespace: "ns", key: "web.ns", left: "a.b.c"},
		"_a._b.web.ns.svc.clusterset.local.":   {kind: nameBelowService, namespace: "ns", key: "web.ns", left: "_a._b"},
		"pod.clusterset.local.":                {},
		"x.dns-version.clusterset.local.":      {},
		"other.clusterset.local.":              {},
		`a\.web.ns.svc.clusterset.local.`:      {kind: nameBelowService, namespace: "ns", key: "web.ns", left: `a\`},
		`web.ns\.svc.clusterset.local.`:        {kind: nameService, namespace: `ns\`, key: `web.ns\`},
		"svc.svc.svc.svc.clusterset.local.":    {kind: nameBelowService, namespace: "svc", key: "svc.svc", left: "svc"},
		"dns-version.ns.svc.clusterset.local.": {kind: nameService, namespace: "ns", key: "dns-version.ns"},
	} {
		if got := parse(name, zone); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	for name, want := range map[string]bool{
		"clusterset.local.": true, "a.clusterset.local.": true, "local.": false, "xclusterset.local.": false, ".": false,
		`a\.clusterset.local.`: false, `a\\.clusterset.local.`: true, `\.clusterset.local.`: false, "clusterset.local.example.": false,
	} {
		if got := Within(name, "clusterset.local."); got != want {
			t.Errorf("%s is within the zone: %v", name, got)
		}
	}
}

func TestParseReverse(t *testing.T) {
	for _, text := range []string{"0.0.0.0", "243.0.255.10", "2001:db8::1", "::", "fd00:243::9:f"} {
		name, err := dns.ReverseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parseReverse(name); !ok || got != ip(text) {
			t.Errorf("%s: %s, %v", name, got, ok)
		}
	}
	for _, name := range []string{
		"in-addr.arpa.", "1.in-addr.arpa.", "1.2.3.in-addr.arpa.", "1.2.3.4.5.in-addr.arpa.", "256.2.3.4.in-addr.arpa.", "01.2.3.4.in-addr.arpa.",
		"a.2.3.4.in-addr.arpa.", "-1.2.3.4.in-addr.arpa.", "1.2.3.4.example.", "0/25.2.3.4.in-addr.arpa.", "ip6.arpa.", "1.ip6.arpa.",
		strings.Repeat("0.", 31) + "g.ip6.arpa.", strings.Repeat("0.", 33) + "ip6.arpa.", strings.Repeat("00", 31) + "0.ip6.arpa.",
	} {
		if got, ok := parseReverse(name); ok {
			t.Errorf("%s is taken for %s", name, got)
		}
	}
}

// Other plugins may change a reply without effect on the next one: CoreDNS's cache writes into the
// records it gets.
func TestRepliesShareNothingThatChanges(t *testing.T) {
	z := newTestZone(t)
	for _, q := range []struct {
		name  string
		qtype uint16
	}{
		{"vip.ns.svc.clusterset.local.", dns.TypeA}, {"vip.ns.svc.clusterset.local.", dns.TypeSRV},
		{"old.ns.svc.clusterset.local.", dns.TypeA}, {"no.ns.svc.clusterset.local.", dns.TypeA},
	} {
		first := query(z, q.name, q.qtype)
		for _, rrs := range [][]dns.RR{first.Answer, first.Ns, first.Extra} {
			for _, rr := range rrs {
				rr.Header().Ttl, rr.Header().Name = 4711, "changed."
			}
		}
		for _, rrs := range [][]dns.RR{query(z, q.name, q.qtype).Answer, query(z, q.name, q.qtype).Ns, query(z, q.name, q.qtype).Extra} {
			for _, rr := range rrs {
				if rr.Header().Ttl == 4711 || rr.Header().Name == "changed." {
					t.Errorf("%s: %s", q.name, rr)
				}
			}
		}
	}
}

// Wire has the same content as Reply.
func TestWireHasTheContentOfReply(t *testing.T) {
	z := newTestZone(t)
	for _, q := range []struct {
		name  string
		qtype uint16
		wired bool
	}{
		{"vip.ns.svc.clusterset.local.", dns.TypeA, true},
		{"VIP.ns.svc.ClusterSet.local.", dns.TypeA, true},
		{"vip.ns.svc.clusterset.local.", dns.TypeAAAA, true},
		{"old.ns.svc.clusterset.local.", dns.TypeA, true},
		{"db.ns.svc.clusterset.local.", dns.TypeA, true},
		{"db-0.west.db.ns.svc.clusterset.local.", dns.TypeA, true},
		{"db.ns.svc.clusterset.local.", dns.TypeAAAA, false},   // none of that family
		{"vip.ns.svc.clusterset.local.", dns.TypeSRV, false},   // another type
		{"big.ns.svc.clusterset.local.", dns.TypeA, false},     // too many
		{"absent.ns.svc.clusterset.local.", dns.TypeA, false},  // no such name
		{"west.db.ns.svc.clusterset.local.", dns.TypeA, false}, // an empty non-terminal
		{"ns.dns.clusterset.local.", dns.TypeA, false},         // not a service
		{`vi\\112.ns.svc.clusterset.local.`, dns.TypeA, false}, // no name in the zone as it is written
	} {
		for _, flags := range []dns.MsgHdr{{}, {RecursionDesired: true}, {CheckingDisabled: true}} {
			r := &dns.Msg{MsgHdr: flags, Question: []dns.Question{{Name: q.name, Qtype: q.qtype, Qclass: dns.ClassINET}}}
			r.Id = dns.Id()
			wire := z.Wire(r, Lower(q.name))
			if (wire != nil) != q.wired {
				t.Errorf("%s %s: bytes %v, want %v", q.name, dns.TypeToString[q.qtype], wire != nil, q.wired)
			}
			if wire == nil {
				continue
			}
			got := new(dns.Msg)
			if err := got.Unpack(wire); err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			if got, want := sortedAnswers(got), sortedAnswers(z.Reply(r, Lower(q.name), dns.MinMsgSize)); got != want {
				t.Errorf("bytes say\n%s\nthe message says\n%s", got, want)
			}
		}
		edns := new(dns.Msg)
		edns.SetQuestion(q.name, q.qtype).SetEdns0(1232, true)
		if z.Wire(edns, Lower(q.name)) != nil {
			t.Errorf("%s: a request with EDNS got bytes", q.name)
		}
	}
}

func sortedAnswers(m *dns.Msg) string {
	slices.SortFunc(m.Answer, func(a, b dns.RR) int { return strings.Compare(a.String(), b.String()) })
	return m.String()
}

func TestCountsAndReverseFollowChanges(t *testing.T) {
	z := newTestZone(t)
	if got := z.Counts(); got[Headless] != (Count{2, 1001}) || got[Classic] != (Count{1, 2}) || got[ClusterSetIP] != (Count{1, 2}) {
		t.Errorf("counts %v", got)
	}
	if name, found := z.Reverse(ip("10.9.0.7")); !found || name != "pod-7.west.big.ns.svc.clusterset.local." {
		t.Errorf("reverse name %q", name)
	}
	for _, name := range []string{"vip", "db", "old", "big"} {
		z.Set(Key("ns", name), nil)
		z.Set(Key("ns", name), nil)
	}
	if got := z.Counts(); got[Headless] != (Count{}) || got[Classic] != (Count{}) || got[ClusterSetIP] != (Count{}) {
		t.Errorf("counts of an empty zone %v", got)
	}
	if _, found := z.Reverse(ip("10.9.0.7")); found || len(z.otherNames) > 0 {
		t.Error("reverse names of what is gone")
	}
	if m := query(z, "ns.svc.clusterset.local.", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("a namespace without services: %v", m)
	}
}

// A slice from a cluster whose id cannot be part of a name has addresses but no hosts.
func TestClusterIDs(t *testing.T) {
	for id, want := range map[string]bool{"east": true, "a.b": true, "6b0-1": true, "": false, "a.b.c": false, "a_b": false, ".a": false,
		"a..b": false, "a b": false} {
		if got := validCluster(id); got != want {
			t.Errorf("%q is an id: %v", id, got)
		}
	}
}

// The first load takes time, and memory on the way, in proportion to its size.
func TestLoadIsLinear(t *testing.T) {
	load := func(endpoints int) float64 {
		s := Service{Namespace: "ns", Name: "db", Kind: Headless}
		slice := &Slice{Cluster: "west"}
		for i := range endpoints {
			slice.Endpoints = append(slice.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})})
		}
		s.Slices = []*Slice{slice}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		z := New(Options{Name: "clusterset.local.", TTL: 5})
		z.Set("db.ns", Build(z.Options, Locality{}, s))
		z.Publish()
		runtime.ReadMemStats(&after)
		if name, found := z.Reverse(slice.Endpoints[endpoints-1].Addr); !found || !strings.Contains(name, ".west.db.ns.") {
			t.Errorf("the last of %d endpoints has the name %q", endpoints, name)
		}
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	if small, large := load(20000), load(80000); large > 5*small {
		t.Errorf("four times the endpoints take %.1f times the memory", large/small)
	}
}

// BenchmarkLoad loads a million headless endpoints, as a server does when it starts.
func BenchmarkLoad(b *testing.B) {
	const services, endpoints = 1000, 1000
	all := make([]Service, services)
	for i := range all {
		slice := &Slice{Cluster: "west", Ports: []Port{{Name: "pg", Protocol: "TCP", Number: 5432}}}
		for j := range endpoints {
			n := i*endpoints + j
			slice.Endpoints = append(slice.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})})
		}
		all[i] = Service{Namespace: "ns", Name: fmt.Sprintf("db-%d", i), Kind: Headless, Slices: []*Slice{slice}}
	}
	for b.Loop() {
		z := New(options)
		for i := range all {
			z.Set(Key("ns", all[i].Name), Build(options, Locality{}, all[i]))
		}
		z.Publish()
	}
}

// An answer allocates only its reply.
func TestAllocations(t *testing.T) {
	z := newTestZone(t)
	for _, c := range []struct {
		name  string
		qtype uint16
		most  float64
	}{
		{"vip.ns.svc.clusterset.local.", dns.TypeA, 1}, {"no.ns.svc.clusterset.local.", dns.TypeA, 1},
		{"db-0.west.db.ns.svc.clusterset.local.", dns.TypeA, 1},
		{"vip.ns.svc.clusterset.local.", dns.TypeMX, 1}, {"old.ns.svc.clusterset.local.", dns.TypeA, 4},
	} {
		m := new(dns.Msg)
		m.SetQuestion(c.name, c.qtype)
		if got := testing.AllocsPerRun(100, func() { z.Wire(m, Lower(c.name)) }); got > 1 {
			t.Errorf("%s %s: %v allocations as bytes, want at most one", c.name, dns.TypeToString[c.qtype], got)
		}
		if got := testing.AllocsPerRun(100, func() { z.Reply(m, Lower(c.name), 1232) }); got > c.most {
			t.Errorf("%s %s: %v allocations, want at most %v", c.name, dns.TypeToString[c.qtype], got, c.most)
		}
	}
}

// Answers are built without I/O: the package depends on no client.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		for _, forbidden := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/coredns/", "github.com/prometheus/"} {
			if strings.HasPrefix(pkg, forbidden) {
				t.Errorf("zone depends on %s", pkg)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"clusterset.local.", "web.ns.svc.clusterset.local.", `a\.b.ns.svc.clusterset.local.`,
		"_http._tcp.web.ns.svc.clusterset.local.", "."} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		lower := Lower(name)
		if !Within(lower, options.Name) {
			return
		}
		q := parse(lower, options.Name)
		switch q.kind {
		case nameService, nameBelowService:
			// Joined again, the parts are the name: no label is lost or used twice.
			if joined := strings.TrimPrefix(q.left+"."+q.key+".svc."+options.Name, "."); joined != lower && !strings.Contains(lower, "..") &&
				lower[0] != '.' {
				t.Errorf("%q was split into %+v", lower, q)
			}
		case nameNamespace:
			if q.namespace+".svc."+options.Name != lower && !strings.Contains(lower, "..") && lower[0] != '.' {
				t.Errorf("%q was split into %+v", lower, q)
			}
		}
		parseReverse(lower)
	})
}

// Every packet that can be parsed gets a reply that can be packed and parsed, with the same
// question.
func FuzzQuery(f *testing.F) {
	for _, name := range []string{"web.ns.svc.clusterset.local.", "big.ns.svc.clusterset.local.", "clusterset.local.",
		"1.0.0.243.in-addr.arpa.", "*.ns.svc.clusterset.local."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeANY, dns.TypeAXFR, dns.TypePTR} {
			m := new(dns.Msg)
			m.SetQuestion(name, qtype)
			packet, _ := m.Pack()
			f.Add(packet)
		}
	}
	z := newTestZone(f)
	f.Fuzz(func(t *testing.T, packet []byte) {
		m := new(dns.Msg)
		if m.Unpack(packet) != nil || len(m.Question) != 1 {
			return
		}
		lower := Lower(m.Question[0].Name)
		var reply *dns.Msg
		switch {
		case Within(lower, options.Name):
			reply = z.Reply(m, lower, 512)
		case IsReverse(lower):
			if reply = z.ReplyReverse(m, lower, "arpa."); reply == nil {
				reply = z.ReplyReverseNegative(m, lower, "arpa.")
			}
		default:
			return
		}
		out, err := reply.Pack()
		if err != nil {
			t.Fatalf("%v: %v", reply, err)
		}
		back := new(dns.Msg)
		packets := [][]byte{out}
		if wire := z.Wire(m, lower); Within(lower, options.Name) && wire != nil {
			packets = append(packets, wire)
		}
		for _, packet := range packets {
			if err := back.Unpack(packet); err != nil || !back.Response || back.Id != m.Id || !slices.Equal(back.Question, m.Question) {
				t.Fatalf("%v came back as %v: %v", m, back, err)
			}
		}
	})
}

func BenchmarkReply(b *testing.B) {
	z := newTestZone(b)
	for _, c := range []struct {
		what, name string
		qtype      uint16
	}{
		{"clustersetip", "vip.ns.svc.clusterset.local.", dns.TypeA}, {"srv", "_http._tcp.vip.ns.svc.clusterset.local.", dns.TypeSRV},
		{"classic", "old.ns.svc.clusterset.local.", dns.TypeA}, {"headless", "db.ns.svc.clusterset.local.", dns.TypeA},
		{"host", "db-0.west.db.ns.svc.clusterset.local.", dns.TypeA}, {"thousand", "big.ns.svc.clusterset.local.", dns.TypeA},
		{"nxdomain", "no.ns.svc.clusterset.local.", dns.TypeA},
	} {
		b.Run(c.what, func(b *testing.B) {
			m := new(dns.Msg)
			m.SetQuestion(c.name, c.qtype)
			b.ReportAllocs()
			for b.Loop() {
				z.Reply(m, Lower(c.name), 1232)
			}
		})
	}
}
