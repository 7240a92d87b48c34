package dns_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/harness"
)

// Names that do not exist are denied, names without records of a type are not, and names with only
// names below them exist (RFC 2308, RFC 8020).
func TestNegativeAnswers(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.1.0.1"}, port("http", 80)))
	s := start(t, cp)
	s.check(t, withNamespace(ns, []row{
		{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. 5 IN A 243.1.0.1"}, nil},
		{"svc.clusterset.local", a, success, nil, nil},
		{"NS.svc.clusterset.local", a, success, nil, nil},
		{"NS.svc.clusterset.local", dns.TypeSOA, success, nil, nil},
		{"web.NS.svc.clusterset.local", dns.TypeSOA, success, nil, nil},
		{"web.NS.svc.clusterset.local", dns.TypeNS, success, nil, nil},
		{"other.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"other.NS.svc.clusterset.local", dns.TypeTXT, nxdomain, nil, nil},
		{"web.nowhere.svc.clusterset.local", a, nxdomain, nil, nil},
		{"nowhere.svc.clusterset.local", a, nxdomain, nil, nil},
		{"x.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{"pod.clusterset.local", a, nxdomain, nil, nil},
		{"web.NS.clusterset.local", a, nxdomain, nil, nil},
		{"a.b.c.d.e.f.g.web.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		// A dot inside a label is not a separator.
		{`web\.NS.svc.clusterset.local`, a, nxdomain, nil, nil},
		{`x\.web.NS.svc.clusterset.local`, a, nxdomain, nil, nil},
	}))
	// After the last service is deleted, its namespace has no name either.
	remove(t, c, clusterSetIP(ns, "web", nil))
	s.check(t, withNamespace(ns, []row{{"NS.svc.clusterset.local", a, nxdomain, nil, nil}}))
}

func TestUnknownTypesHaveNoData(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.1.1.1"}, port("http", 80)))
	rows := []row{{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. 5 IN A 243.1.1.1"}, nil}}
	for _, qtype := range []uint16{dns.TypeMX, dns.TypeCNAME, dns.TypeTXT, dns.TypeHTTPS, dns.TypeCAA, dns.TypeDNSKEY, dns.TypeANY,
		dns.TypeNAPTR, 65280} {
		rows = append(rows, row{"web.NS.svc.clusterset.local", qtype, success, nil, nil})
	}
	start(t, cp).check(t, withNamespace(ns, rows))
}

func TestOtherClassesAreRefused(t *testing.T) {
	// If `forward` follows, the server passes other classes to the plugin.
	cp := cluster(t)
	text := corefile(cp, "clusterset.local")
	for _, corefile := range []string{text, strings.TrimSuffix(text, "}\n") + " forward . 127.0.0.1:1\n}\n"} {
		s := startCorefile(t, corefile)
		for _, class := range []uint16{dns.ClassCHAOS, dns.ClassHESIOD, dns.ClassANY, dns.ClassNONE} {
			reply, err := s.exchange("udp", newQuery("svc.clusterset.local", a, func(m *dns.Msg) { m.Question[0].Qclass = class }))
			if err != nil || reply.Rcode != dns.RcodeRefused || len(reply.Answer) > 0 {
				t.Errorf("class %s: %v, %v", dns.ClassToString[class], reply, err)
			}
		}
	}
}

func TestTransfersAreRefused(t *testing.T) {
	s := start(t, cluster(t))
	for _, network := range []string{"udp", "tcp"} {
		for _, name := range []string{"clusterset.local", "svc.clusterset.local", "in-addr.arpa"} {
			for _, m := range []*dns.Msg{newQuery(name, dns.TypeAXFR), new(dns.Msg).SetIxfr(dns.Fqdn(name), 1, "ns.", "mail.")} {
				reply, err := s.exchange(network, m)
				if err != nil || reply.Rcode != dns.RcodeRefused || len(reply.Answer) > 0 {
					t.Errorf("%s over %s: %v, %v", m.Question[0].String(), network, reply, err)
				}
			}
		}
	}
}

func TestWildcardsAreRefused(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.1.2.1"}, port("http", 80)))
	s := start(t, cp)
	rows := []row{{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. 5 IN A 243.1.2.1"}, nil}}
	for _, name := range []string{"*.NS.svc.clusterset.local", "web.*.svc.clusterset.local", "*.*.svc.clusterset.local",
		"*.web.NS.svc.clusterset.local",
		"_http.*.web.NS.svc.clusterset.local", "*._tcp.web.NS.svc.clusterset.local", "*.clusterset.local", "web.NS.*.clusterset.local"} {
		rows = append(rows, row{name, a, dns.RcodeRefused, nil, nil}, row{name, srv, dns.RcodeRefused, nil, nil})
	}
	s.check(t, withNamespace(ns, rows))
}

// QUERY is the only opcode; others get NOTIMP (RFC 1035, 4.1.1).
func TestOtherOpcodes(t *testing.T) {
	s := start(t, cluster(t))
	for _, opcode := range []int{dns.OpcodeNotify, dns.OpcodeUpdate, dns.OpcodeStatus} {
		reply, err := s.exchange("udp", newQuery("clusterset.local", dns.TypeSOA, func(m *dns.Msg) { m.Opcode = opcode }))
		if err != nil || reply.Rcode != dns.RcodeNotImplemented {
			t.Errorf("%s: %v, %v", dns.OpcodeToString[opcode], reply, err)
		}
	}
}

// The letter case of a query is kept in the reply (draft-vixie-dnsext-dns0x20), also in the zone's
// name.
func TestCaseIsKept(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.1.3.1"}, port("http", 80)))
	s := start(t, cp)
	s.check(t, withNamespace(ns, []row{
		{"wEb.NS.sVC.ClusterSet.Local", a, success, []string{"wEb.NS.sVC.ClusterSet.Local. 5 IN A 243.1.3.1"}, nil},
		{"_HTTP._Tcp.web.NS.svc.clusterset.LOCAL", srv, success,
			[]string{"_HTTP._Tcp.web.NS.svc.clusterset.LOCAL. 5 IN SRV 0 100 80 web.NS.svc.clusterset.local."},
			[]string{"web.NS.svc.clusterset.local. 5 IN A 243.1.3.1"}},
	}))
	reply := s.query("No.Such.Svc.ClusterSet.LOCAL", a)
	if soa := soaOf(reply); reply.Question[0].Name != "No.Such.Svc.ClusterSet.LOCAL." || soa == nil || soa.Hdr.Name != "ClusterSet.LOCAL." {
		t.Errorf("queried in mixed case: %v", reply)
	}
	reversed, _ := dns.ReverseAddr("243.1.3.1")
	reply = s.query(strings.ToUpper(reversed), dns.TypePTR)
	if len(reply.Answer) != 1 || reply.Answer[0].Header().Name != strings.ToUpper(reversed) {
		t.Errorf("a reverse name in capitals: %v", reply)
	}
}

// Names of the maximum length of Kubernetes and DNS are answered. Endpoints whose name would be
// longer still have addresses.
func TestNamesAtTheLimits(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	long := strings.Repeat("s", 63)
	db := headless(ns, long, port("a-port-of-15-let", 5432))
	const fixed = len("....svc.clusterset.local.")
	fits := strings.Repeat("h", 63)
	// A cluster id that makes the name 254 characters long with its last dot: 255 bytes on the wire.
	id := strings.Repeat("c", 254-fixed-len(fits)-len(long)-len(ns))
	if len(id) > 63 {
		id = id[:63] // the namespace of this test is too short to fill the name
	}
	tooLong := strings.Repeat("d", 63)
	create(t, c, db, imported(db, id, "1", endpoint("10.9.0.1", named(fits))),
		imported(db, tooLong, "1", endpoint("10.9.0.2", named(strings.Repeat("h", 63)))))
	name := fmt.Sprintf("%s.%s.%s.NS.svc.clusterset.local", fits, id, long)
	service := long + ".NS.svc.clusterset.local"
	rows := []row{
		{service, a, success, []string{service + ". 5 IN A 10.9.0.1", service + ". 5 IN A 10.9.0.2"}, nil},
		{name, a, success, []string{name + ". 5 IN A 10.9.0.1"}, nil},
	}
	s := start(t, cp)
	s.check(t, withNamespace(ns, rows))
	for _, n := range []string{strings.Repeat("x.", 115) + "clusterset.local", strings.Repeat("y", 63) + ".svc.clusterset.local"} {
		if reply := s.query(n, a); reply.Rcode != nxdomain {
			t.Errorf("a name of %d characters: %v", len(n), reply)
		}
	}
}

// An answer that exceeds a client's buffer is truncated, has the TC bit, and is complete over TCP.
func TestTruncationAndTCP(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	big := headless(ns, "big", port("pg", 5432))
	create(t, c, big)
	const slices, each = 4, 75
	for i := range slices {
		s := imported(big, "west", fmt.Sprint(i))
		for j := range each {
			s.Endpoints = append(s.Endpoints, endpoint(fmt.Sprintf("10.8.%d.%d", i, j), named(fmt.Sprintf("big-%d", i*each+j))))
		}
		create(t, c, s)
	}
	s := start(t, cp)
	name := "big." + ns + ".svc.clusterset.local"
	harness.Eventually(t, "all addresses over TCP", func() error {
		reply, err := s.exchange("tcp", newQuery(name, a))
		if err == nil && (len(reply.Answer) != slices*each || reply.Truncated) {
			err = fmt.Errorf("%d addresses, truncated: %v", len(reply.Answer), reply.Truncated)
		}
		return err
	})
	for _, qtype := range []uint16{a, srv} {
		for _, size := range []uint16{0, 100, 512, 1232, 4096} {
			m := newQuery(name, qtype)
			limit := 512
			if size > 0 {
				m.SetEdns0(size, true)
				limit = max(limit, int(size))
			}
			reply, err := s.exchange("udp", m)
			if err != nil {
				t.Fatalf("%s with a buffer of %d: %v", dns.TypeToString[qtype], size, err)
			}
			reply.Compress = true
			if !reply.Truncated || reply.Len() > limit || len(reply.Answer) == 0 {
				t.Errorf("%s with a buffer of %d: %d bytes, %d records, truncated: %v", dns.TypeToString[qtype], size, reply.Len(),
					len(reply.Answer), reply.Truncated)
			}
			if opt := reply.IsEdns0(); (opt != nil) != (size > 0) || (opt != nil && !opt.Do()) {
				t.Errorf("OPT for a buffer of %d: %v", size, opt)
			}
		}
	}
	// A large enough buffer gets everything over UDP.
	m := newQuery(name, a)
	m.SetEdns0(16000, false)
	if reply, err := s.exchange("udp", m); err != nil || reply.Truncated || len(reply.Answer) != slices*each {
		t.Errorf("with a buffer of 16000: %d records, %v", len(reply.Answer), err)
	}
}

// Additional records that do not fit are left out without setting the TC bit (RFC 2181, 9).
func TestAdditionalRecordsDoNotCutTheAnswer(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	var all []string
	s := imported(db, "west", "1")
	for i := range 3 {
		s.Endpoints = append(s.Endpoints, endpoint(fmt.Sprintf("10.7.0.%d", i), named(fmt.Sprintf("%s-%d", strings.Repeat("d", 50), i))))
		all = append(all, s.Endpoints[i].Addresses[0])
	}
	create(t, c, db, s)
	server := start(t, cp)
	harness.Eventually(t, "three targets in 512 bytes", func() error {
		reply, err := server.exchange("udp", newQuery("_pg._tcp.db."+ns+".svc.clusterset.local", srv))
		if err == nil && (len(reply.Answer) != len(all) || reply.Truncated || len(reply.Extra) > 0) {
			err = fmt.Errorf("%d targets, %d additional, truncated: %v", len(reply.Answer), len(reply.Extra), reply.Truncated)
		}
		return err
	})
}

func TestEDNSVersions(t *testing.T) {
	s := start(t, cluster(t))
	m := newQuery("clusterset.local", dns.TypeSOA)
	m.SetEdns0(1232, false)
	m.IsEdns0().SetVersion(1)
	if reply, err := s.exchange("udp", m); err != nil || reply.Rcode != dns.RcodeBadVers {
		t.Errorf("EDNS version 1: %v, %v", reply, err)
	}
}

// The server survives thousands of malformed packets, and every reply it sends is well-formed.
func TestMalformedPackets(t *testing.T) {
	s := start(t, cluster(t))
	conn, err := net.Dial("udp", s.udp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	good, _ := newQuery("web.ns.svc.clusterset.local", srv, withEDNS).Pack()
	buffer := make([]byte, 65535)
	for i := range 5000 {
		packet := slices.Clone(good)
		for range 1 + rand.IntN(8) {
			packet[rand.IntN(len(packet))] = byte(rand.Uint32())
		}
		packet = packet[:rand.IntN(len(packet)+1)]
		if _, err := conn.Write(packet); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		if i%50 != 0 {
			continue
		}
		for { // read the replies so far
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, err := conn.Read(buffer)
			if err != nil {
				break
			}
			if err := new(dns.Msg).Unpack(buffer[:n]); err != nil {
				t.Fatalf("a reply that cannot be read: %v: %x", err, buffer[:n])
			}
		}
	}
	harness.Eventually(t, "an answer after all that", func() error {
		_, err := s.exchange("udp", newQuery("dns-version.clusterset.local", dns.TypeTXT))
		return err
	})
}
