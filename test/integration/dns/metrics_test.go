package dns_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/harness"
)

// All metrics in docs/dns.md exist, and clients cannot create labels by their queries.
func TestMetrics(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, clusterSetIP(ns, "web", []string{"243.4.0.1"}, port("http", 80)), db, imported(db, "west", "1", endpoint("10.4.0.1")))
	page, profiles := dnsprocess.FreeAddress(t), dnsprocess.FreeAddress(t)
	text := strings.TrimSuffix(corefile(cp, "clusterset.local in-addr.arpa"), "}\n")
	s := startCorefile(t, text+" prometheus "+page+"\n pprof "+profiles+"\n}\n")
	s.waitForAddresses(t, "db."+ns+".svc.clusterset.local", 1)
	for i := range 300 {
		s.query(fmt.Sprintf("n%d.svc.clusterset.local", i), uint16(200+i))
	}
	for _, qtype := range []uint16{a, aaaa, srv, dns.TypePTR, dns.TypeTXT, dns.TypeSOA, dns.TypeNS} {
		s.query("web."+ns+".svc.clusterset.local", qtype)
	}
	s.query("*.svc.clusterset.local", a)
	harness.Eventually(t, "all metrics", func() error {
		_, body, err := httpGet("http://" + page + "/metrics")
		if err != nil {
			return err
		}
		for _, want := range []string{
			`seamark_dns_queries_total\{rcode="NOERROR",server="dns://[^"]*",type="A"\} [1-9]`,
			`seamark_dns_queries_total\{rcode="NOERROR",server="dns://[^"]*",type="SRV"\} [1-9]`,
			`seamark_dns_queries_total\{rcode="NXDOMAIN",server="dns://[^"]*",type="other"\} [1-9]`,
			`seamark_dns_queries_total\{rcode="REFUSED",server="dns://[^"]*",type="A"\} [1-9]`,
			`seamark_dns_answer_duration_seconds_count\{server="dns://[^"]*"\} [1-9]`, `seamark_dns_change_to_answer_seconds_count [1-9]`,
			`seamark_dns_services\{kind="clustersetip"\} [1-9]`, `seamark_dns_services\{kind="headless"\} [1-9]`,
			`seamark_dns_services\{kind="classic"\} \d`,
			`seamark_dns_endpoints\{kind="headless"\} [1-9]`, `seamark_dns_api_connected 1`, `seamark_dns_synced 1`,
		} {
			if !regexp.MustCompile(`(?m)^` + want).MatchString(body) {
				return errors.New("no " + want)
			}
		}
		if n := strings.Count(body, "\nseamark_dns_queries_total{"); n > 8*5*2 { // servers on one and on all addresses
			return fmt.Errorf("%d series of queries", n)
		}
		return nil
	})
	if status, body, err := httpGet("http://" + profiles + "/debug/pprof/"); err != nil || status != http.StatusOK ||
		!strings.Contains(body, "goroutine") {
		t.Errorf("profiles: %d, %v", status, err)
	}
}
