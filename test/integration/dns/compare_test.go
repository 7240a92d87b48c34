package dns_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/harness"
)

// difference is a kind of query that the two servers answer differently, and why Seamark's answer
// is right.
type difference struct {
	why     string
	matches func(name string, qtype uint16, seamark, coredns *dns.Msg) bool
}

// differences are all known differences. The test fails for one that is not listed, and for one
// that no longer occurs.
var differences = []difference{
	{"wildcard queries are refused", func(name string, _ uint16, seamark, _ *dns.Msg) bool {
		return strings.Contains(name, "*.") && seamark.Rcode == dns.RcodeRefused
	}},
	{"a name that does not exist has no SOA record either (RFC 2308)", func(_ string, qtype uint16, seamark, coredns *dns.Msg) bool {
		return qtype == dns.TypeSOA && seamark.Rcode == nxdomain && coredns.Rcode == success && len(coredns.Answer) == 0
	}},
	{"a name exists if one below it does (RFC 8020)", func(name string, _ uint16, seamark, coredns *dns.Msg) bool {
		above := strings.HasPrefix(name, "_tcp.") || strings.HasPrefix(name, "west.db.") || strings.HasPrefix(name, "north.db.")
		return above && seamark.Rcode == success && len(seamark.Answer) == 0 && coredns.Rcode == nxdomain
	}},
	{"a name exists for every type if it does for one", func(name string, qtype uint16, seamark, coredns *dns.Msg) bool {
		known := strings.HasPrefix(name, "dns-version.") || strings.HasPrefix(name, "ns.dns.") ||
			(qtype == dns.TypeTXT && strings.Count(name, ".") < 5)
		return known && seamark.Rcode == success && len(seamark.Answer) == 0 && coredns.Rcode == nxdomain
	}},
	{"names of pods have addresses only", func(name string, qtype uint16, seamark, coredns *dns.Msg) bool {
		return qtype == srv && strings.Contains(name, ".db.") && len(seamark.Answer) == 0 && len(coredns.Answer) > 0
	}},
	{"names of ports have SRV records only", func(name string, qtype uint16, seamark, coredns *dns.Msg) bool {
		return strings.HasPrefix(name, "_") && (qtype == a || qtype == aaaa) && len(seamark.Answer) == 0 && len(coredns.Answer) > 0
	}},
	{"an answer with several addresses is kept out of caches", func(_ string, qtype uint16, seamark, coredns *dns.Msg) bool {
		bare := seamark.Copy()
		bare.Ns = nil
		return (qtype == a || qtype == aaaa) && len(seamark.Answer) > 1 && len(seamark.Ns) == 1 && summary(bare) == summary(coredns)
	}},
	{"the zone has name servers, with addresses", func(name string, qtype uint16, _, coredns *dns.Msg) bool {
		return (name == "clusterset.local." && qtype == dns.TypeNS || name == "ns.dns.clusterset.local.") && len(coredns.Answer) == 0
	}},
}

// TestAnswersLikeCoreDNS sends the same queries about the same objects to CoreDNS's own plugin for
// multi-cluster services and to Seamark's.
func TestAnswersLikeCoreDNS(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := clusterSetIP(ns, "web", []string{"243.0.9.1", "fd00:243::91"}, port("https", 443), port("http", 80), port("udp", 53))
	db := headless(ns, "db", port("pg", 5432), port("metrics", 9000))
	create(t, c, web, imported(web, "west", "1", endpoint("10.1.0.1")),
		clusterSetIP(ns, "single", []string{"243.0.9.2"}, port("http", 80)),
		db, imported(db, "west", "1", endpoint("10.1.0.2", named("db-0")), endpoint("10.1.0.3", named("db-1")), endpoint("10.1.0.4", notReady)),
		imported(db, "north", "1", endpoint("10.2.0.2", named("db-0")), endpoint("10.2.0.5")),
		imported(db, "north", "2", endpoint("fd00:2::2", named("db-0"))))
	seamarkServer := start(t, cp)
	coreDNSServer := startInTree(t, cp)

	var names []string
	for _, service := range []string{"web", "single", "db", "absent"} {
		base := service + "." + ns + ".svc.clusterset.local."
		names = append(names, base, strings.ToUpper(service)+"."+ns+".svc.Clusterset.local.")
		for _, left := range []string{
			"_http._tcp", "_https._tcp", "_udp._udp", "_pg._tcp", "_http._udp", "_none._tcp", "_tcp", "west", "north", "nowhere", "db-0.west",
			"db-0.north", "db-1.west", "db-1.north",
			"10-2-0-5.north", "10-1-0-4.west", "db-0", "_pg._tcp.db-0.west", "x.db-0.west", "*", "*.west",
		} {
			names = append(names, left+"."+base)
		}
	}
	names = append(names, ns+".svc.clusterset.local.", "absent.svc.clusterset.local.", "web.absent.svc.clusterset.local.",
		"svc.clusterset.local.", "clusterset.local.", "dns-version.clusterset.local.",
		"web."+ns+".pod.clusterset.local.", "10-1-0-1."+ns+".pod.clusterset.local.",
		"other.clusterset.local.", "ns.dns.clusterset.local.")

	lastQuery := newQuery("db."+ns+".svc.clusterset.local", a, withEDNS)
	for _, s := range []*dnsServer{seamarkServer, coreDNSServer} {
		harness.Eventually(t, "both answer for the last service", func() error {
			if reply, err := s.exchange("udp", lastQuery.Copy()); err != nil || len(reply.Answer) != 4 {
				return fmt.Errorf("%v: %w", reply, err)
			}
			return nil
		})
	}
	sent, counts := 0, map[string]int{}
	for _, name := range names {
		for _, qtype := range []uint16{a, aaaa, srv, dns.TypeTXT, dns.TypeMX, dns.TypeSOA, dns.TypeNS} {
			sent++
			seamark, coredns := mustExchange(t, seamarkServer, name, qtype), mustExchange(t, coreDNSServer, name, qtype)
			if summary(seamark) == summary(coredns) {
				continue
			}
			i := slices.IndexFunc(differences, func(d difference) bool { return d.matches(name, qtype, seamark, coredns) })
			if i < 0 {
				t.Errorf("%s %s\nseamark: %s\ncoredns: %s", dns.TypeToString[qtype], name, summary(seamark), summary(coredns))
				continue
			}
			counts[differences[i].why]++
		}
	}
	for _, d := range differences {
		if counts[d.why] == 0 {
			t.Errorf("no longer a difference: %s", d.why)
		}
	}
	t.Logf("%d queries; answered differently: %v", sent, counts)
}

// startInTree runs CoreDNS's own plugin in another process.
func startInTree(t *testing.T, cp *controlplane.ControlPlane) *dnsServer {
	t.Helper()
	const block = "clusterset.local:%s {\n bind 127.0.0.1\n" +
		" kubernetes clusterset.local {\n  kubeconfig %s\n  multicluster clusterset.local\n }\n}\n"
	s, _ := startProcess(t, func(port string) string { return fmt.Sprintf(block, port, cp.Kubeconfig()) })
	return s
}

// startProcess runs a server in another process, with a Corefile for a port. It returns the path of
// the Corefile, too.
func startProcess(t *testing.T, corefile func(port string) string) (s *dnsServer, path string) {
	t.Helper()
	address, path := dnsprocess.Start(t, corefile)
	return &dnsServer{t: t, udp: address, tcp: address}, path
}

func mustExchange(t *testing.T, s *dnsServer, name string, qtype uint16) *dns.Msg {
	t.Helper()
	reply, err := s.exchange("udp", newQuery(name, qtype, withEDNS))
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[qtype], err)
	}
	return reply
}

// summary returns the content of a reply in one line. It leaves out what may differ: serial
// numbers; weights, because CoreDNS counts an address of each family as another service; and the
// letter case of targets.
func summary(m *dns.Msg) string {
	records := func(rrs []dns.RR) []string {
		out := recordTexts(rrs)
		for i, text := range out {
			fields := strings.Fields(strings.ToLower(text))
			switch {
			case len(fields) > 5 && fields[3] == "srv":
				fields[5] = "weight"
			case len(fields) > 6 && fields[3] == "soa":
				fields = fields[:6]
			}
			out[i] = strings.Join(fields, " ")
		}
		slices.Sort(out)
		return out
	}
	var authority []string
	for _, rr := range m.Ns {
		authority = append(authority, dns.TypeToString[rr.Header().Rrtype])
	}
	return fmt.Sprintf("%s aa=%v answer=%q authority=%q additional=%q", dns.RcodeToString[m.Rcode], m.Authoritative, records(m.Answer),
		authority, records(m.Extra))
}
