package dns_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	forward "github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/harness"
)

// startForward runs a cluster's own DNS with the server blocks that join adds.
func startForward(t *testing.T, to *dnsServer, reverse ...string) *dnsServer {
	t.Helper()
	block, err := forward.Block(forward.Forward{Reverse: reverse, Servers: []string{to.udp}})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(dnsprocess.FreeAddress(t), ":")
	return startCorefile(t, strings.ReplaceAll(strings.ReplaceAll(block, ":53", ":"+port), "    errors", "    bind 127.0.0.1\n    errors"))
}

// Pods ask the cluster's own DNS, whose cache is between them and seamark-dns.
func TestThroughTheClustersDNS(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := clusterSetIP(ns, "web", []string{"243.4.1.1", "fd00:243::41"}, port("http", 80))
	db := headless(ns, "db", port("pg", 5432))
	legacy := classic(ns, "legacy", port("http", 80))
	create(t, c, web, db, legacy,
		imported(db, "west", "1", endpoint("10.4.1.1", named("db-0")), endpoint("10.4.1.2", named("db-1")), endpoint("10.4.1.3", named("db-2"))),
		imported(legacy, localCluster, "1", endpoint("10.4.2.1")), imported(legacy, "west", "1", endpoint("10.4.2.2")))
	seamark := start(t, cp)
	s := startForward(t, seamark, "243.in-addr.arpa", "4.10.in-addr.arpa")
	name := func(service string) string { return service + "." + ns + ".svc.clusterset.local" }
	s.checkPlain(t, ns, []row{
		{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. IN A 243.4.1.1"}, nil},
		{"web.NS.svc.clusterset.local", aaaa, success, []string{"web.NS.svc.clusterset.local. IN AAAA fd00:243::41"}, nil},
		{"_http._tcp.web.NS.svc.clusterset.local", srv, success,
			[]string{"_http._tcp.web.NS.svc.clusterset.local. IN SRV 0 100 80 web.NS.svc.clusterset.local."}, nil},
		{"1.1.4.243.in-addr.arpa", dns.TypePTR, success, []string{"1.1.4.243.in-addr.arpa. IN PTR web.NS.svc.clusterset.local."}, nil},
		{"1.1.4.10.in-addr.arpa", dns.TypePTR, success, []string{"1.1.4.10.in-addr.arpa. IN PTR db-0.west.db.NS.svc.clusterset.local."}, nil},
	})

	t.Run("order", func(t *testing.T) {
		firsts := map[string]int{}
		for range 60 {
			reply := s.query(name("db"), a)
			if len(reply.Answer) != 3 {
				t.Fatal(reply)
			}
			firsts[reply.Answer[0].(*dns.A).A.String()]++
		}
		if len(firsts) != 3 {
			t.Errorf("the first of three addresses in 60 answers: %v", firsts)
		}
		for range 20 {
			if reply := s.query(name("legacy"), a); len(reply.Answer) != 2 || reply.Answer[0].(*dns.A).A.String() != "10.4.2.1" {
				t.Fatalf("the own cluster is not first: %v", reply)
			}
		}
	})
	t.Run("denial", func(t *testing.T) {
		if reply := s.query(name("later"), a); reply.Rcode != nxdomain {
			t.Fatal(reply)
		}
		create(t, c, clusterSetIP(ns, "later", []string{"243.4.1.2"}, port("http", 80)))
		created := time.Now()
		harness.Eventually(t, "a name that was denied before", func() error { return wantAddresses(s, name("later"), "243.4.1.2") })
		t.Logf("answered %s after it was created", time.Since(created))
	})
	t.Run("gone", func(t *testing.T) {
		if err := wantAddresses(s, name("web"), "243.4.1.1"); err != nil {
			t.Fatal(err)
		}
		remove(t, c, web)
		harness.Eventually(t, "seamark-dns denies a deleted service", func() error {
			if reply := seamark.query(name("web"), a); reply.Rcode != nxdomain {
				return errors.New(reply.String())
			}
			return nil
		})
		gone := time.Now()
		// An answer of the cache lives no longer than the TTL that it had when the service was
		// there.
		for {
			reply, asked := s.query(name("web"), a), time.Since(gone)
			if reply.Rcode == nxdomain {
				break
			}
			if asked > 6*time.Second {
				t.Fatalf("still answered after %s: %v", asked, reply)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	// The cache answers without seamark-dns, so the load does not reach it.
	t.Run("kept", func(t *testing.T) {
		if err := wantAddresses(s, name("later"), "243.4.1.2"); err != nil {
			t.Fatal(err)
		}
		seamark.stop()
		if err := wantAddresses(s, name("later"), "243.4.1.2"); err != nil {
			t.Errorf("not from the cache: %v", err)
		}
	})
}

func wantAddresses(s *dnsServer, name, address string) error {
	reply, err := s.exchange("udp", newQuery(name, a))
	if err == nil && (len(reply.Answer) != 1 || reply.Answer[0].(*dns.A).A.String() != address) {
		err = errors.New(reply.String())
	}
	return err
}

// checkPlain waits until each row is answered, whatever the TTL that the cache gives.
func (s *dnsServer) checkPlain(t *testing.T, ns string, rows []row) {
	t.Helper()
	for _, r := range withNamespace(ns, rows) {
		harness.Eventually(t, fmt.Sprintf("%s %s", r.name, dns.TypeToString[r.qtype]), func() error {
			reply, err := s.exchange("udp", newQuery(r.name, r.qtype))
			if err != nil {
				return err
			}
			var got []string
			for _, rr := range reply.Answer {
				fields := strings.Fields(rr.String())
				got = append(got, strings.Join(append(fields[:1:1], fields[2:]...), " "))
				if rr.Header().Ttl > 5 {
					return fmt.Errorf("a TTL longer than that of seamark-dns: %s", rr)
				}
			}
			if strings.Join(got, "\n") != strings.Join(r.answer, "\n") {
				return fmt.Errorf("%q, want %q", got, r.answer)
			}
			return nil
		})
	}
}
