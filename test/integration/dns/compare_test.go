package dns_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/harness"
)

// where the two servers differ, and why ours is right. A difference that is not listed fails the test, and so does one that is no more.
var knownDifferences = map[string]string{}

// TestAnswersLikeCoreDNS asks CoreDNS's own plugin for multi-cluster services and ours the same questions about the same objects.
func TestAnswersLikeCoreDNS(t *testing.T) {
	cp := cluster(t)
	ns, c := harness.Namespace(t, cp), clientOf(t, cp)
	web := clusterSetIP(ns, "web", []string{"243.0.9.1", "fd00:243::91"}, port("https", 443), port("http", 80), port("udp", 53))
	db := headless(ns, "db", port("pg", 5432), port("metrics", 9000))
	create(t, c, web, imported(web, "west", "1", endpoint("10.1.0.1")),
		clusterSetIP(ns, "single", []string{"243.0.9.2"}, port("http", 80)),
		db, imported(db, "west", "1", endpoint("10.1.0.2", named("db-0")), endpoint("10.1.0.3", named("db-1")), endpoint("10.1.0.4", notReady)),
		imported(db, "north", "1", endpoint("10.2.0.2", named("db-0")), endpoint("10.2.0.5")),
		imported(db, "north", "2", endpoint("fd00:2::2", named("db-0"))))
	ours := start(t, cp)
	theirs := startCorefile(t, fmt.Sprintf("clusterset.local:0 {\n bind 127.0.0.1\n kubernetes clusterset.local {\n  kubeconfig %s\n  multicluster clusterset.local\n }\n}\n", cp.Kubeconfig()))

	var names []string
	for _, service := range []string{"web", "single", "db", "absent"} {
		base := service + "." + ns + ".svc.clusterset.local."
		names = append(names, base, strings.ToUpper(service)+"."+ns+".svc.Clusterset.local.")
		for _, left := range []string{
			"_http._tcp", "_https._tcp", "_udp._udp", "_pg._tcp", "_http._udp", "_none._tcp", "_tcp", "west", "north", "nowhere", "db-0.west", "db-0.north", "db-1.west", "db-1.north",
			"10-2-0-5.north", "10-1-0-4.west", "db-0", "_pg._tcp.db-0.west", "x.db-0.west", "*", "*.west",
		} {
			names = append(names, left+"."+base)
		}
	}
	names = append(names, ns+".svc.clusterset.local.", "absent.svc.clusterset.local.", "web.absent.svc.clusterset.local.", "svc.clusterset.local.", "clusterset.local.",
		"dns-version.clusterset.local.", "web."+ns+".pod.clusterset.local.", "10-1-0-1."+ns+".pod.clusterset.local.", "other.clusterset.local.", "ns.dns.clusterset.local.")

	settle := query("db."+ns+".svc.clusterset.local", a, roomy)
	for _, s := range []*dnsServer{ours, theirs} {
		harness.Eventually(t, "both know the last service", func() error {
			if reply, err := s.exchange("udp", settle.Copy()); err != nil || len(reply.Answer) != 4 {
				return fmt.Errorf("%v: %w", reply, err)
			}
			return nil
		})
	}
	asked, met := 0, map[string]bool{}
	for _, name := range names {
		for _, qtype := range []uint16{a, aaaa, srv, dns.TypeTXT, dns.TypeMX, dns.TypeSOA, dns.TypeNS} {
			asked++
			mine, their := said(t, ours, name, qtype), said(t, theirs, name, qtype)
			if mine == their {
				continue
			}
			what := dns.TypeToString[qtype] + " " + strings.Replace(name, ns, "NS", 1)
			if _, known := knownDifferences[what]; known {
				met[what] = true
				continue
			}
			t.Errorf("%s\nours:   %s\ntheirs: %s", what, mine, their)
		}
	}
	for what := range knownDifferences {
		if !met[what] {
			t.Errorf("%s: no longer answered differently", what)
		}
	}
	t.Logf("%d questions, %d known differences", asked, len(knownDifferences))
}

// said is what a reply says, in one line.
func said(t *testing.T, s *dnsServer, name string, qtype uint16) string {
	t.Helper()
	reply, err := s.exchange("udp", query(name, qtype, roomy))
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[qtype], err)
	}
	var authority []string
	for _, rr := range reply.Ns {
		authority = append(authority, dns.TypeToString[rr.Header().Rrtype])
	}
	slices.Sort(authority)
	answers := texts(reply.Answer)
	for i, text := range answers {
		if qtype == dns.TypeSOA { // serial numbers are each server's own
			answers[i] = strings.Join(strings.Fields(text)[:6], " ")
		}
	}
	return fmt.Sprintf("%s aa=%v answer=%q authority=%q additional=%q", dns.RcodeToString[reply.Rcode], reply.Authoritative, answers, authority, texts(reply.Extra))
}
