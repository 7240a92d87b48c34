package dns_test

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// withNamespace replaces NS by a namespace in all texts of the rows.
func withNamespace(ns string, rows []row) []row {
	replace := func(texts []string) (out []string) {
		for _, text := range texts {
			out = append(out, strings.ReplaceAll(text, "NS", ns))
		}
		return out
	}
	for i := range rows {
		r := &rows[i]
		r.name = strings.ReplaceAll(r.name, "NS", ns)
		r.answer, r.extra = replace(r.answer), replace(r.extra)
	}
	return rows
}

const (
	a, aaaa, srv      = dns.TypeA, dns.TypeAAAA, dns.TypeSRV
	success, nxdomain = dns.RcodeSuccess, dns.RcodeNameError
)

func TestSchemaVersion(t *testing.T) {
	s := start(t, cluster(t))
	s.check(t, []row{
		{"dns-version.clusterset.local", dns.TypeTXT, success, []string{`dns-version.clusterset.local. 28800 IN TXT "1.1.0"`}, nil},
		{"dns-version.clusterset.local", a, success, nil, nil},
		{"x.dns-version.clusterset.local", dns.TypeTXT, nxdomain, nil, nil},
	})
}

func TestClusterSetIPRecords(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := clusterSetIP(ns, "web", []string{"243.0.1.1", "fd00:243::1"}, port("https", 443), port("http", 80), port("udp", 443), port("", 99))
	create(t, c, web, imported(web, "west", "1", endpoint("10.1.0.1", named("pod-0"))),
		clusterSetIP(ns, "v4", []string{"243.0.1.2"}, port("http", 80)),
		clusterSetIP(ns, "pending", nil, port("http", 80)),
		clusterSetIP(ns, "portless", []string{"243.0.1.3"}),
		clusterSetIP(ns, "unnamed", []string{"243.0.1.4"}, port("", 80)))
	glue := []string{"web.NS.svc.clusterset.local. 5 IN A 243.0.1.1", "web.NS.svc.clusterset.local. 5 IN AAAA fd00:243::1"}
	start(t, cp).check(t, withNamespace(ns, []row{
		{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. 5 IN A 243.0.1.1"}, nil},
		{"web.NS.svc.clusterset.local", aaaa, success, []string{"web.NS.svc.clusterset.local. 5 IN AAAA fd00:243::1"}, nil},
		{"_https._tcp.web.NS.svc.clusterset.local", srv, success,
			[]string{"_https._tcp.web.NS.svc.clusterset.local. 5 IN SRV 0 100 443 web.NS.svc.clusterset.local."}, glue},
		{"_udp._udp.web.NS.svc.clusterset.local", srv, success,
			[]string{"_udp._udp.web.NS.svc.clusterset.local. 5 IN SRV 0 100 443 web.NS.svc.clusterset.local."}, glue},
		// Without port labels: all named ports, and 443 once though two ports have it.
		{"web.NS.svc.clusterset.local", srv, success, []string{
			"web.NS.svc.clusterset.local. 5 IN SRV 0 50 443 web.NS.svc.clusterset.local.",
			"web.NS.svc.clusterset.local. 5 IN SRV 0 50 80 web.NS.svc.clusterset.local.",
		}, glue},
		{"v4.NS.svc.clusterset.local", a, success, []string{"v4.NS.svc.clusterset.local. 5 IN A 243.0.1.2"}, nil},
		{"v4.NS.svc.clusterset.local", aaaa, success, nil, nil},
		{"portless.NS.svc.clusterset.local", a, success, []string{"portless.NS.svc.clusterset.local. 5 IN A 243.0.1.3"}, nil},
		{"portless.NS.svc.clusterset.local", srv, success, nil, nil},
		// Unnamed ports have no SRV record.
		{"unnamed.NS.svc.clusterset.local", a, success, []string{"unnamed.NS.svc.clusterset.local. 5 IN A 243.0.1.4"}, nil},
		{"unnamed.NS.svc.clusterset.local", srv, success, nil, nil},
		{"_._tcp.unnamed.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
		// A service that waits for its clusterset IP exists.
		{"pending.NS.svc.clusterset.local", a, success, nil, nil},
		{"_http._tcp.pending.NS.svc.clusterset.local", srv, success, nil, nil},
		// Names between a service and its ports exist, others do not.
		{"_tcp.web.NS.svc.clusterset.local", srv, success, nil, nil},
		{"_https._tcp.web.NS.svc.clusterset.local", a, success, nil, nil},
		{"_https._udp.web.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
		{"_other._tcp.web.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
		{"_sctp.web.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
	}))
}

// No name of a service with a clusterset IP leads to the endpoints of one cluster (2.3.4).
func TestClusterSetIPHasNoClusterNames(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := clusterSetIP(ns, "web", []string{"243.0.2.1"}, port("http", 80))
	create(t, c, web, imported(web, "west", "1", endpoint("10.2.0.1", named("pod-0"))))
	for _, option := range []string{"ttl 5", "lighthouse-names"} {
		start(t, cp, option).check(t, withNamespace(ns, []row{
			{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. 5 IN A 243.0.2.1"}, nil},
			{"west.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
			{"pod-0.west.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
			{"10-2-0-1.west.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
			{"_http._tcp.west.web.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
		}))
	}
}

func TestHeadlessRecords(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432), port("", 99))
	quiet := headless(ns, "quiet", port("pg", 5432))
	create(t, c, db, quiet,
		imported(db, localCluster, "1", endpoint("10.1.3.1", named("db-0")), endpoint("10.1.3.2", unknownReady),
			endpoint("10.1.3.3", named("db-2"), notReady)),
		imported(db, localCluster, "2", endpoint("fd00:1::3:1", named("db-0"))),
		imported(db, "west", "1", endpoint("10.2.3.1", named("db-0")), endpoint("10.2.3.9", named("db-0"))),
		imported(db, "north.eu", "1", endpoint("10.3.3.1", named("db-0"))),
		imported(quiet, "west", "1", endpoint("10.2.3.7", named("db-0"), notReady)))
	host := func(left, record string) string { return left + ".db.NS.svc.clusterset.local. 5 IN " + record }
	target := func(left string) string {
		return "_pg._tcp.db.NS.svc.clusterset.local. 5 IN SRV 0 25 5432 " + left + ".db.NS.svc.clusterset.local."
	}
	targets := []string{target("db-0.east"), target("10-1-3-2.east"), target("db-0.west"), target("db-0.north.eu")}
	start(t, cp).check(t, withNamespace(ns, []row{
		{"db.NS.svc.clusterset.local", a, success, []string{
			"db.NS.svc.clusterset.local. 5 IN A 10.1.3.1", "db.NS.svc.clusterset.local. 5 IN A 10.1.3.2",
			"db.NS.svc.clusterset.local. 5 IN A 10.2.3.1",
			"db.NS.svc.clusterset.local. 5 IN A 10.2.3.9", "db.NS.svc.clusterset.local. 5 IN A 10.3.3.1",
		}, nil},
		{"db.NS.svc.clusterset.local", aaaa, success, []string{"db.NS.svc.clusterset.local. 5 IN AAAA fd00:1::3:1"}, nil},
		{"db-0.east.db.NS.svc.clusterset.local", a, success, []string{host("db-0.east", "A 10.1.3.1")}, nil},
		{"db-0.east.db.NS.svc.clusterset.local", aaaa, success, []string{host("db-0.east", "AAAA fd00:1::3:1")}, nil},
		{"db-0.west.db.NS.svc.clusterset.local", a, success, []string{host("db-0.west", "A 10.2.3.1"), host("db-0.west", "A 10.2.3.9")}, nil},
		{"db-0.west.db.NS.svc.clusterset.local", aaaa, success, nil, nil},
		// An id of two labels; an endpoint without a hostname.
		{"db-0.north.eu.db.NS.svc.clusterset.local", a, success, []string{host("db-0.north.eu", "A 10.3.3.1")}, nil},
		{"10-1-3-2.east.db.NS.svc.clusterset.local", a, success, []string{host("10-1-3-2.east", "A 10.1.3.2")}, nil},
		{"_pg._tcp.db.NS.svc.clusterset.local", srv, success, targets, []string{
			host("db-0.east", "A 10.1.3.1"), host("db-0.east", "AAAA fd00:1::3:1"), host("10-1-3-2.east", "A 10.1.3.2"),
			host("db-0.west", "A 10.2.3.1"), host("db-0.west", "A 10.2.3.9"), host("db-0.north.eu", "A 10.3.3.1"),
		}},
		// An endpoint that is not ready has no name. A service without ready endpoints has none
		// either.
		{"db-2.east.db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"10-1-3-3.east.db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"quiet.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"quiet.NS.svc.clusterset.local", aaaa, nxdomain, nil, nil},
		{"quiet.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
		{"_pg._tcp.quiet.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
		// An endpoint with a hostname has no second name of its address.
		{"10-1-3-1.east.db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"db-0.south.db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"db-0.db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"x.db-0.east.db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"db-0.north.db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"_._tcp.db.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
	}))
}

// No name of a headless service has the endpoints of one cluster (2.4.4). The cluster's label
// exists only because of the names below it.
func TestHeadlessHasNoClusterRecords(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, db, imported(db, "west", "1", endpoint("10.2.4.1", named("db-0"))),
		imported(db, "north.eu", "1", endpoint("10.3.4.1", named("db-0"))))
	rows := []row{{"db-0.north.eu.db.NS.svc.clusterset.local", a, success,
		[]string{"db-0.north.eu.db.NS.svc.clusterset.local. 5 IN A 10.3.4.1"}, nil}}
	for _, name := range []string{"west", "north.eu", "eu"} {
		for _, qtype := range []uint16{a, aaaa, srv} {
			rows = append(rows, row{name + ".db.NS.svc.clusterset.local", qtype, success, nil, nil})
		}
	}
	rows = append(rows, row{"_pg._tcp.west.db.NS.svc.clusterset.local", srv, nxdomain, nil, nil})
	start(t, cp).check(t, withNamespace(ns, rows))
}

func TestClassicRecords(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := classic(ns, "web", port("http", 80))
	down := classic(ns, "down", port("http", 80))
	create(t, c, web, down,
		imported(web, localCluster, "4", endpoint("10.96.5.1")), imported(web, localCluster, "6", endpoint("fd00:96::5:1")),
		imported(web, "west", "4", endpoint("10.97.5.1")), imported(web, "north", "4", endpoint("10.98.5.1", notReady)),
		imported(down, localCluster, "4", endpoint("10.96.5.2", notReady)))
	name := "web.NS.svc.clusterset.local. 5 IN "
	start(t, cp).check(t, withNamespace(ns, []row{
		{"web.NS.svc.clusterset.local", a, success, []string{name + "A 10.96.5.1", name + "A 10.97.5.1"}, nil},
		{"web.NS.svc.clusterset.local", aaaa, success, []string{name + "AAAA fd00:96::5:1"}, nil},
		{"_http._tcp.web.NS.svc.clusterset.local", srv, success,
			[]string{"_http._tcp.web.NS.svc.clusterset.local. 5 IN SRV 0 100 80 web.NS.svc.clusterset.local."},
			[]string{name + "A 10.96.5.1", name + "A 10.97.5.1", name + "AAAA fd00:96::5:1"}},
		{"_https._tcp.web.NS.svc.clusterset.local", srv, nxdomain, nil, nil},
		{"west.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"10-97-5-1.west.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"down.NS.svc.clusterset.local", a, success, nil, nil},
		{"down.NS.svc.clusterset.local", srv, success, nil, nil},
	}))
}

func TestReverseNames(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	derived := clusterSetIP(ns, "derived", []string{"10.96.6.6"}, port("http", 80))
	derived.Annotations = map[string]string{v1alpha1.AnnotationClusterSetIPs: "243.0.6.6,fd00:243::6:6"}
	stated := clusterSetIP(ns, "stated", []string{"243.0.6.7"}, port("http", 80))
	stated.Annotations = map[string]string{v1alpha1.AnnotationClusterSetIPs: "243.0.6.7"}
	db, old := headless(ns, "db", port("pg", 5432)), headless(ns, "backup", port("pg", 5432))
	web := classic(ns, "classic", port("http", 80))
	create(t, c, clusterSetIP(ns, "web", []string{"243.0.6.1", "fd00:243::6:1"}, port("http", 80)), derived, stated, db, old, web,
		imported(web, "west", "1", endpoint("10.97.6.1")),
		imported(db, localCluster, "1", endpoint("10.1.6.1", named("db-0"))),
		imported(db, "west", "1", endpoint("10.2.6.1", named("db-0")), endpoint("10.2.6.2"), endpoint("10.2.6.3", named("db-3"), notReady)),
		imported(db, "west", "2", endpoint("fd00:2::6:1", named("db-0"))),
		imported(old, "west", "1", endpoint("10.2.6.1", named("db-0"))))
	reverse := func(ip string) string { r, _ := dns.ReverseAddr(ip); return r }
	is := func(ip, name string) row {
		return row{reverse(ip), dns.TypePTR, success, []string{reverse(ip) + " 5 IN PTR " + name + ".NS.svc.clusterset.local."}, nil}
	}
	// No plugin follows here that could have names for the others. TestReverseNamesArePassedOn
	// tests what is passed on.
	rows := []row{
		is("243.0.6.1", "web"), is("fd00:243::6:1", "web"), is("243.0.6.7", "stated"),
		is("10.2.6.2", "10-2-6-2.west.db"), is("fd00:2::6:1", "db-0.west.db"),
		// Two services share a pod: it has one name, the same each time.
		is("10.2.6.1", "db-0.west.backup"),
		{reverse("243.0.6.1"), a, success, nil, nil},
		{reverse("243.0.6.1"), dns.TypeSRV, success, nil, nil},
	}
	for _, unknown := range []string{"10.2.6.3", "10.1.6.1", "10.96.6.6", "243.0.6.6", "10.97.6.1", "243.0.6.99", "fd00:243::6:99"} {
		rows = append(rows, row{reverse(unknown), dns.TypePTR, nxdomain, nil, nil})
	}
	s := start(t, cp)
	s.check(t, withNamespace(ns, rows))

	// After the first name is deleted, the second is used.
	remove(t, c, old)
	s.check(t, withNamespace(ns, []row{is("10.2.6.1", "db-0.west.db")}))
}

// Negative answers about addresses come in the name of a small zone, or of the one in the Corefile:
// seamark-dns is not the authority for all addresses.
func TestReverseAuthority(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.0.16.1"}, port("http", 80)))
	all := start(t, cp)
	narrow := startCorefile(t, corefile(cp, "clusterset.local 16.0.243.in-addr.arpa"))
	if err := wantAddresses(all, "web."+ns+".svc.clusterset.local", "243.0.16.1"); err != nil {
		t.Fatal(err)
	}
	nibbles := strings.Repeat("0.", 15)
	for _, test := range []struct {
		server *dnsServer
		name   string
		rcode  int
		soa    string
	}{
		{all, "9.16.0.243.in-addr.arpa.", nxdomain, "16.0.243.in-addr.arpa."},
		{all, "9." + nibbles + "2.0.0.0.1.0.0.0.3.4.2.0.0.0.d.f.ip6.arpa.", nxdomain, "2.0.0.0.1.0.0.0.3.4.2.0.0.0.d.f.ip6.arpa."},
		{all, "1.16.0.243.IN-ADDR.arpa.", success, "16.0.243.IN-ADDR.arpa."},
		{all, "16.0.243.in-addr.arpa.", dns.RcodeRefused, ""},
		{all, "in-addr.arpa.", dns.RcodeRefused, ""},
		{narrow, "9.16.0.243.in-addr.arpa.", nxdomain, "16.0.243.in-addr.arpa."},
		{narrow, "16.0.243.in-addr.arpa.", success, "16.0.243.in-addr.arpa."},
	} {
		reply := test.server.query(test.name, dns.TypeSOA)
		soa := soaOf(reply)
		if reply.Rcode != test.rcode || (soa == nil) != (test.soa == "") || (soa != nil && soa.Hdr.Name != test.soa) {
			t.Errorf("%s: %s, SOA %v, want %s of %s", test.name, dns.RcodeToString[reply.Rcode], soa, dns.RcodeToString[test.rcode], test.soa)
		}
	}
}

// The zone's name server has the addresses of the Service by which clients reach it.
func TestNameServerIsTheService(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "dns"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}}}
	create(t, c, service)
	start(t, cp, "ns "+ns+"/dns").check(t, []row{{"ns.dns.clusterset.local", a, success,
		[]string{"ns.dns.clusterset.local. 5 IN A " + service.Spec.ClusterIP}, nil}})
	// Without the Service it has those of the server.
	start(t, cp, "ns "+ns+"/none").check(t, []row{{"ns.dns.clusterset.local", a, success,
		[]string{"ns.dns.clusterset.local. 5 IN A 127.0.0.1"}, nil}})
}

func TestZoneRecords(t *testing.T) {
	s := start(t, cluster(t))
	s.check(t, []row{
		{"clusterset.local", dns.TypeNS, success, []string{"clusterset.local. 5 IN NS ns.dns.clusterset.local."},
			[]string{"ns.dns.clusterset.local. 5 IN A 127.0.0.1"}},
		{"ns.dns.clusterset.local", a, success, []string{"ns.dns.clusterset.local. 5 IN A 127.0.0.1"}, nil},
		{"ns.dns.clusterset.local", aaaa, success, nil, nil},
		{"dns.clusterset.local", a, success, nil, nil},
		{"clusterset.local", a, success, nil, nil},
		{"clusterset.local", dns.TypeMX, success, nil, nil},
	})
	reply := s.query("clusterset.local", dns.TypeSOA)
	if len(reply.Answer) != 1 || len(reply.Ns) != 0 {
		t.Fatalf("SOA of the zone: %v", reply)
	}
	soa := reply.Answer[0].(*dns.SOA)
	if soa.Ns != "ns.dns.clusterset.local." || soa.Mbox != "hostmaster.clusterset.local." || soa.Serial == 0 || soa.Minttl != 5 ||
		soa.Hdr.Ttl != 5 {
		t.Errorf("SOA of the zone: %s", soa)
	}
}

// A service with a protocol other than TCP and UDP has records too.
func TestOtherProtocols(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "sig", []string{"243.0.7.1"},
		mcsv1beta1.ServicePort{Name: "diameter", Port: 3868, Protocol: corev1.ProtocolSCTP}))
	start(t, cp).check(t, withNamespace(ns, []row{{"_diameter._sctp.sig.NS.svc.clusterset.local", srv, success,
		[]string{"_diameter._sctp.sig.NS.svc.clusterset.local. 5 IN SRV 0 100 3868 sig.NS.svc.clusterset.local."},
		[]string{"sig.NS.svc.clusterset.local. 5 IN A 243.0.7.1"}}}))
}
