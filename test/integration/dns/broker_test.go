package dns_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// A broker may be on the same API server. Its objects, which come from all clusters, are not
// services of this cluster.
func TestTheBrokersObjectsHaveNoNames(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	aggregate := clusterSetIP(ns, "web.shop", []string{"243.0.8.1"}, port("http", 80))
	aggregate.Labels = map[string]string{v1alpha1.LabelServiceNamespace: "shop"}
	published := imported(headless(ns, "db", port("pg", 5432)), "west", "1", endpoint("10.8.0.1"))
	published.Labels[v1alpha1.LabelServiceNamespace] = "shop"
	// Created last: once it is answered, the objects before it have been read too.
	create(t, c, aggregate, published, headless(ns, "db", port("pg", 5432)), clusterSetIP(ns, "web", []string{"243.0.8.2"}, port("http", 80)))
	s := start(t, cp)
	s.check(t, withNamespace(ns, []row{
		{"web.NS.svc.clusterset.local", a, success, []string{"web.NS.svc.clusterset.local. 5 IN A 243.0.8.2"}, nil},
		{"db.NS.svc.clusterset.local", a, nxdomain, nil, nil},
		{fmt.Sprintf("web.shop.%s.svc.clusterset.local", ns), a, nxdomain, nil, nil},
	}))
	if reply := s.query("1.8.0.243.in-addr.arpa.", dns.TypePTR); len(reply.Answer) > 0 {
		t.Errorf("the aggregate's address is named %s", strings.Join(recordTexts(reply.Answer), ", "))
	}
}
