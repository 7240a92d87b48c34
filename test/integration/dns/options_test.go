package dns_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/harness"
)

func TestTTL(t *testing.T) {
	s := start(t, cluster(t), "ttl 30")
	soa := soaOf(s.query("no.svc.clusterset.local", a))
	if soa == nil || soa.Hdr.Ttl != 30 || soa.Minttl != 30 {
		t.Errorf("SOA with `ttl 30`: %v", soa)
	}
	if reply := s.query("dns-version.clusterset.local", dns.TypeTXT); reply.Answer[0].Header().Ttl != 28800 {
		t.Errorf("the TTL of the schema version is not that of the specification: %v", reply)
	}
}

func TestAnotherZone(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.3.0.1"}, port("http", 80)))
	s := startCorefile(t, corefile(cp, "fleet.example in-addr.arpa"))
	s.check(t, withNamespace(ns, []row{
		{"web.NS.svc.fleet.example", a, success, []string{"web.NS.svc.fleet.example. 5 IN A 243.3.0.1"}, nil},
		{"_http._tcp.web.NS.svc.fleet.example", srv, success,
			[]string{"_http._tcp.web.NS.svc.fleet.example. 5 IN SRV 0 100 80 web.NS.svc.fleet.example."},
			[]string{"web.NS.svc.fleet.example. 5 IN A 243.3.0.1"}},
		{"1.0.3.243.in-addr.arpa", dns.TypePTR, success, []string{"1.0.3.243.in-addr.arpa. 5 IN PTR web.NS.svc.fleet.example."}, nil},
	}))
	s.check(t, []row{{"fleet.example", dns.TypeNS, success, []string{"fleet.example. 5 IN NS ns.dns.fleet.example."},
		[]string{"ns.dns.fleet.example. 5 IN A 127.0.0.1"}}})
	if reply := s.query("web."+ns+".svc.clusterset.local", a); reply.Rcode != dns.RcodeRefused {
		t.Errorf("a zone that is not served: %v", reply)
	}
}

// Lighthouse's names for one cluster's endpoints exist only with the option.
func TestLighthouseNames(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web, db := classic(ns, "web", port("http", 80)), headless(ns, "db", port("pg", 5432))
	create(t, c, web, db, imported(web, "west", "1", endpoint("10.97.0.1")), imported(web, "north.eu", "1", endpoint("10.98.0.1", notReady)),
		imported(db, "west", "1", endpoint("10.2.0.1"), endpoint("10.2.0.2")))
	start(t, cp, "lighthouse-names").check(t, withNamespace(ns, []row{
		{"west.web.NS.svc.clusterset.local", a, success, []string{"west.web.NS.svc.clusterset.local. 5 IN A 10.97.0.1"}, nil},
		{"west.db.NS.svc.clusterset.local", a, success,
			[]string{"west.db.NS.svc.clusterset.local. 5 IN A 10.2.0.1", "west.db.NS.svc.clusterset.local. 5 IN A 10.2.0.2"}, nil},
		{"west.db.NS.svc.clusterset.local", aaaa, success, nil, nil},
		{"north.eu.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"10-2-0-1.west.db.NS.svc.clusterset.local", a, success, []string{"10-2-0-1.west.db.NS.svc.clusterset.local. 5 IN A 10.2.0.1"}, nil},
	}))
	start(t, cp).check(t, withNamespace(ns, []row{{"west.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"west.db.NS.svc.clusterset.local", a, success, nil, nil}}))
}

// withNextPlugin adds a plugin to a Corefile that answers everything else with 192.0.2.1 or a name
// of its own.
func withNextPlugin(text string) string {
	return strings.TrimSuffix(text, "}\n") + ` template ANY A {
  answer "{{ .Name }} 60 IN A 192.0.2.1"
 }
 template ANY PTR {
  answer "{{ .Name }} 60 IN PTR own.cluster.local."
 }
}
`
}

// With `fallthrough`, queries for addresses without a name in the zone are passed on to the next
// plugin, such as the cluster's own DNS. `template` stands for it here, but it precedes
// `clusterset` in the chain, so a second server is queried through `forward`.
func TestReverseNamesArePassedOn(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, clusterSetIP(ns, "web", []string{"243.3.1.1"}, port("http", 80)), db,
		imported(db, localCluster, "1", endpoint("10.1.3.11", named("db-0"))), imported(db, "west", "1", endpoint("10.2.3.11", named("db-0"))))
	clusterDNS := startCorefile(t, withNextPlugin(".:0 {\n bind 127.0.0.1\n}\n"))
	text := corefile(cp, "clusterset.local in-addr.arpa", "fallthrough fall.svc.clusterset.local 10.in-addr.arpa")
	s := startCorefile(t, strings.TrimSuffix(text, "}\n")+" forward . "+clusterDNS.udp+"\n}\n")
	reverse := func(ip string) string { r, _ := dns.ReverseAddr(ip); return r }
	for ip, want := range map[string]string{
		"243.3.1.1": "web." + ns + ".svc.clusterset.local.",
		"10.2.3.11": "db-0.west.db." + ns + ".svc.clusterset.local.",
		// An endpoint of the own cluster, and one of no import: the cluster's own DNS may have a
		// name for them.
		"10.1.3.11": "own.cluster.local.",
		"10.9.9.9":  "own.cluster.local.",
	} {
		harness.Eventually(t, "the name of "+ip, func() error {
			reply, err := s.exchange("udp", newQuery(reverse(ip), dns.TypePTR))
			if err == nil && (len(reply.Answer) != 1 || reply.Answer[0].(*dns.PTR).Ptr != want) {
				err = errors.New(reply.String())
			}
			return err
		})
	}
	if reply := s.query(reverse("192.0.2.9"), dns.TypePTR); reply.Rcode != nxdomain {
		t.Errorf("an address that does not fall through: %v", reply)
	}
	// `fallthrough` does the same for names of the zone that it lists.
	if reply := s.query("x.fall.svc.clusterset.local", a); len(reply.Answer) != 1 {
		t.Errorf("a name that falls through: %v", reply)
	}
	if reply := s.query("x.stay.svc.clusterset.local", a); reply.Rcode != nxdomain {
		t.Errorf("a name that does not fall through: %v", reply)
	}
}

// CoreDNS's cache and loadbalance change the records that they get. That must not affect the next
// answer.
func TestBehindTheCache(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.3.2.1"}, port("http", 80)))
	// The cache lowers the TTL of what it hands out to 2 and counts down from there.
	s := startCorefile(t, addPlugins(corefile(cp, "clusterset.local"), "cache 2", "loadbalance", "errors"))
	plain := start(t, cp)
	name := "web." + ns + ".svc.clusterset.local"
	ttl := func(s *dnsServer) uint32 {
		reply := s.query(name, a)
		if len(reply.Answer) != 1 || reply.Answer[0].(*dns.A).A.String() != "243.3.2.1" {
			t.Fatal(reply)
		}
		return reply.Answer[0].Header().Ttl
	}
	if first := ttl(s); first != 2 {
		t.Errorf("the first answer of the cache has a TTL of %d, want 2", first)
	}
	harness.Eventually(t, "the cache counts down", func() error {
		if now := ttl(s); now != 1 {
			return fmt.Errorf("a TTL of %d", now)
		}
		return nil
	})
	harness.Eventually(t, "an answer that was read again", func() error {
		if now := ttl(s); now != 2 {
			return fmt.Errorf("a TTL of %d", now)
		}
		return nil
	})
	if now := ttl(plain); now != 5 {
		t.Errorf("without a cache the TTL is %d, want 5", now)
	}
}

func TestBadCorefiles(t *testing.T) {
	cp := cluster(t)
	for name, c := range map[string]struct{ text, want string }{
		"unknown option":     {corefile(cp, "clusterset.local", "speed fast"), `unknown option "speed"`},
		"bad ttl":            {corefile(cp, "clusterset.local", "ttl soon"), "ttl soon"},
		"large ttl":          {corefile(cp, "clusterset.local", "ttl 3601"), "ttl 3601"},
		"ttl without number": {corefile(cp, "clusterset.local", "ttl"), "Wrong argument count"},
		"bad locality":       {corefile(cp, "clusterset.local", "locality vip"), "locality vip"},
		"locality none, too": {corefile(cp, "clusterset.local", "locality none classic"), "locality none classic"},
		"empty locality":     {corefile(cp, "clusterset.local", "locality"), "Wrong argument count"},
		"two zones":          {corefile(cp, "clusterset.local other.example"), "one zone can be answered here"},
		"reverse zone only":  {corefile(cp, "in-addr.arpa"), "only reverse zones are named"},
		"the root":           {".:0 {\n clusterset . {\n  kubeconfig /nowhere\n }\n}\n", "the root cannot be"},
		"no kubeconfig":      {"clusterset.local:0 {\n clusterset\n}\n", "kubeconfig PATH"},
		"missing kubeconfig": {"clusterset.local:0 {\n clusterset {\n  kubeconfig /nowhere\n }\n}\n", "/nowhere"},
		"twice":              {"clusterset.local:0 {\n clusterset {\n  kubeconfig /nowhere\n }\n clusterset\n}\n", "once per Server Block"},
		"ns without a name":  {corefile(cp, "clusterset.local", "ns seamark-dns"), "want NAMESPACE/NAME"},
		"bad timeout":        {corefile(cp, "clusterset.local", "startup_timeout soon"), "startup_timeout soon"},
		"arguments to names": {corefile(cp, "clusterset.local", "lighthouse-names yes"), "Wrong argument count"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tryCorefile(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// In a server block for the root the zone is clusterset.local; `kubernetes` in the same block
// serves the cluster's own zone.
func TestAsTheClustersOwnDNS(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.3.3.1"}, port("http", 80)))
	s := startCorefile(t, ".:0 {\n bind 127.0.0.1\n"+
		" kubernetes cluster.local in-addr.arpa {\n  kubeconfig "+cp.Kubeconfig()+"\n  fallthrough in-addr.arpa\n }\n"+
		" clusterset clusterset.local in-addr.arpa {\n  fallthrough in-addr.arpa\n  kubeconfig "+cp.Kubeconfig()+" "+cp.Name()+"\n }\n whoami\n}\n")
	s.check(t, withNamespace(ns, []row{
		{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. 5 IN A 243.3.3.1"}, nil},
		{"kubernetes.default.svc.cluster.local", a, success, []string{"kubernetes.default.svc.cluster.local. 5 IN A 10.96.0.1"}, nil},
		{"1.3.3.243.in-addr.arpa", dns.TypePTR, success, []string{"1.3.3.243.in-addr.arpa. 5 IN PTR web.NS.svc.clusterset.local."}, nil},
		{"1.0.96.10.in-addr.arpa", dns.TypePTR, success, []string{"1.0.96.10.in-addr.arpa. 5 IN PTR kubernetes.default.svc.cluster.local."}, nil},
	}))
	alone := startCorefile(t, ".:0 {\n bind 127.0.0.1\n clusterset {\n  kubeconfig "+cp.Kubeconfig()+"\n }\n}\n")
	alone.check(t, withNamespace(ns, []row{{"web.NS.svc.clusterset.local", a, success,
		[]string{"web.NS.svc.clusterset.local. 5 IN A 243.3.3.1"}, nil}}))
}

// The binary prints its version and refuses a bad Corefile.
func TestBinary(t *testing.T) {
	binary := filepath.Join(harness.Dir(t), "seamark-dns")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary,
		"github.com/seamark-dev/seamark/cmd/seamark-dns").CombinedOutput(); err != nil {
		t.Fatalf("building seamark-dns: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-version").Output()
	if err != nil || !strings.HasPrefix(string(out), "seamark-dns-") {
		t.Errorf("-version: %v\n%s", err, out)
	}
	bad := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(bad, []byte("clusterset.local:0 {\n clusterset {\n  speed fast\n }\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = exec.CommandContext(t.Context(), binary, "-conf", bad).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unknown option") {
		t.Errorf("with a bad Corefile: %v\n%s", err, out)
	}
}

// Only seamark-dns depends on CoreDNS: the agent and the CLI stay small.
func TestCoreDNSStaysOutOfTheOthers(t *testing.T) {
	for _, command := range []string{"seamark-agent", "seamark"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/seamark-dev/seamark/cmd/"+command).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for _, pkg := range strings.Fields(string(out)) {
			if strings.HasPrefix(pkg, "github.com/coredns/") {
				t.Errorf("%s depends on %s", command, pkg)
			}
		}
	}
}
