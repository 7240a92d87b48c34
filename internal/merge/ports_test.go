package merge_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

func portsAre(want string) func(merge.Result) (any, any) {
	return func(r merge.Result) (any, any) { return ports(r), want }
}

// Row "ports" of the design.
func TestPorts(t *testing.T) {
	http, https, dns := port("http", tcp, 80), port("https", tcp, 443), port("dns", udp, 53)
	run(t, []mergeCase{
		{name: "no protocol is TCP", in: records{record("a", 1, withPorts(port("http", "", 80))), record("b", 2, withPorts(http))},
			check: portsAre("http 80/TCP")},
		{name: "union in order of precedence", in: records{record("c", 3, withPorts(dns)), record("b", 2, withPorts(https)),
			record("a", 1, withPorts(http))},
			conflicts: []string{"PortConflict: a, b, c"}, check: portsAre("http 80/TCP, https 443/TCP, dns 53/UDP")},
		{name: "a newer one has fewer", in: records{record("a", 1, withPorts(http, https)), record("b", 2, withPorts(https))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("http 80/TCP, https 443/TCP")},
		{name: "the name is taken with another number", in: records{record("a", 1, withPorts(http)),
			record("b", 2, withPorts(port("http", tcp, 8080)))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("http 80/TCP")},
		{name: "the name is taken with another protocol", in: records{record("a", 1, withPorts(dns)),
			record("b", 2, withPorts(port("dns", tcp, 53)))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("dns 53/UDP")},
		{name: "the number is taken under another name", in: records{record("a", 1, withPorts(http)),
			record("b", 2, withPorts(port("web", tcp, 80), https))},
			conflicts: []string{"PortConflict: a, b"}, check: portsAre("http 80/TCP, https 443/TCP")},
		{name: "one number, two protocols", in: records{record("a", 1, withPorts(dns)), record("b", 2, withPorts(port("dns-tcp", tcp, 53)))},
			conflicts: []string{"PortConflict: a, b"}, check: portsAre("dns 53/UDP, dns-tcp 53/TCP")},
		{name: "three ways, the second's port blocks the third's", in: records{record("a", 1, withPorts(http)),
			record("b", 2, withPorts(https)), record("c", 3, withPorts(port("https", tcp, 8443), dns))},
			conflicts: []string{"PortConflict: a, b, c"}, check: portsAre("http 80/TCP, https 443/TCP, dns 53/UDP")},
		{name: "unnamed and equal", in: records{record("a", 1, withPorts(port("", tcp, 80))), record("b", 2, withPorts(port("", "", 80)))},
			check: portsAre("80/TCP")},
		{name: "unnamed and another number", in: records{record("a", 1, withPorts(port("", tcp, 80))),
			record("b", 2, withPorts(port("", tcp, 81)))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("80/TCP")},
		{name: "no port joins an unnamed one", in: records{record("a", 1, withPorts(port("", tcp, 80))),
			record("b", 2, withPorts(https, dns))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("80/TCP")},
		{name: "an unnamed port joins no named one", in: records{record("a", 1, withPorts(http)), record("b", 2, withPorts(port("", tcp, 443)))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("http 80/TCP")},
		{name: "an unnamed port joins an empty list", in: records{record("a", 1, headless(), withPorts()),
			record("b", 2, headless(), withPorts(port("", tcp, 443))), record("c", 3, headless(), withPorts(http))},
			conflicts: []string{"PortConflict: a, b, c"}, check: portsAre("443/TCP")},
		{name: "headless without ports", in: records{record("a", 1, headless(), withPorts()), record("b", 2, headless(), withPorts())},
			check: func(r merge.Result) (any, any) { return r.Spec.Ports != nil && len(r.Spec.Ports) == 0, true }},
		{name: "application protocol: the older hint wins", in: records{record("a", 1, withPorts(appPort("http", 80, "http"))),
			record("b", 2, withPorts(appPort("http", 80, "kubernetes.io/h2c"))), record("c", 3, withPorts(http))},
			conflicts: []string{"PortConflict: b, c"}, check: portsAre("http 80/TCP http")},
		{name: "an empty application protocol is none", in: records{record("a", 1, withPorts(appPort("http", 80, ""))),
			record("b", 2, withPorts(http))}, check: portsAre("http 80/TCP")},
	})
}

// In classic mode a client gets one cluster's ClusterIP for all ports: only ports that all clusters
// have are in the service.
func TestClassicPorts(t *testing.T) {
	http, https, dns := port("http", tcp, 80), port("https", tcp, 443), port("dns", udp, 53)
	off := withClusterSetIP(false, false)
	run(t, []mergeCase{
		{name: "intersection in the oldest's order", in: records{record("a", 1, off, withPorts(https, http, dns)),
			record("b", 2, off, withPorts(http, https))},
			conflicts: []string{"PortConflict: a, b"}, check: portsAre("https 443/TCP, http 80/TCP")},
		{name: "the oldest has fewest", in: records{record("a", 1, off, withPorts(http)), record("b", 2, off, withPorts(http, dns))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("http 80/TCP")},
		{name: "nothing in common", in: records{record("a", 1, off, withPorts(http)), record("b", 2, off, withPorts(https)),
			record("c", 3, off, withPorts(http))},
			conflicts: []string{"PortConflict: a, b, c"},
			check:     func(r merge.Result) (any, any) { return r.Spec.Ports != nil && len(r.Spec.Ports) == 0, true }},
		{name: "one name, two numbers", in: records{record("a", 1, off, withPorts(http, dns)),
			record("b", 2, off, withPorts(port("http", tcp, 8080), dns))},
			conflicts: []string{"PortConflict: a, b"}, check: portsAre("dns 53/UDP")},
		{name: "a different hint does not drop a port", in: records{record("a", 1, off, withPorts(appPort("http", 80, "http"))),
			record("b", 2, off, withPorts(http))},
			conflicts: []string{"PortConflict: b"}, check: portsAre("http 80/TCP http")},
	})
}

// The CRD refuses all of these. One that is stored nevertheless must do no harm, at any place in
// the list.
func TestInvalidPorts(t *testing.T) {
	http := port("http", tcp, 80)
	for name, tc := range map[string]struct {
		bad  v1alpha1.ServicePort
		want string
	}{
		"number 0":                  {port("x", tcp, 0), "http 80/TCP"},
		"negative":                  {port("x", tcp, -1), "http 80/TCP"},
		"number too high":           {port("x", tcp, 65536), "http 80/TCP"},
		"name no DNS label":         {port("Ex_", tcp, 1), "http 80/TCP"},
		"unknown protocol":          {port("x", "ICMP", 1), "http 80/TCP"},
		"unnamed beside a named":    {port("", tcp, 1), "http 80/TCP"},
		"twice the same":            {http, "http 80/TCP"},
		"name twice, lower stays":   {port("http", tcp, 81), "http 80/TCP"},
		"number twice, lower name":  {port("web", tcp, 80), "http 80/TCP"},
		"bad application protocol":  {appPort("x", 81, "a..b/c"), "http 80/TCP, x 81/TCP"},
		"long application protocol": {appPort("x", 81, fmt.Sprintf("%064d", 1)), "http 80/TCP, x 81/TCP"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, []mergeCase{
				{name: "last", in: records{record("a", 1, withPorts(http, tc.bad))}, check: portsAre(tc.want)},
				{name: "first", in: records{record("a", 1, withPorts(tc.bad, http)), record("b", 2, withPorts(http, tc.bad))},
					check: func(r merge.Result) (any, any) {
						return len(r.Spec.Ports), len(mergetest.Merge(records{record("a", 1, withPorts(http, tc.bad))}).Spec.Ports)
					}},
			})
		})
	}
}

func TestCarriesPort(t *testing.T) {
	type ask struct {
		cluster, name string
		protocol      corev1.Protocol
		want          bool
	}
	for name, tc := range map[string]struct {
		in   records
		asks []ask
	}{
		"each its own": {records{record("a", 1), record("b", 2, withPorts(port("https", tcp, 443)))}, []ask{
			{"a", "http", tcp, true}, {"a", "http", "", true}, {"a", "http", udp, false}, {"a", "https", tcp, false},
			{"b", "https", tcp, true}, {"b", "http", tcp, false}, {"unknown", "http", tcp, false},
		}},
		"the number lost, under another name": {records{record("a", 1), record("b", 2, withPorts(port("web", tcp, 80)))}, []ask{
			{"b", "web", tcp, false}, {"b", "http", tcp, false},
		}},
		"unnamed": {records{record("a", 1, withPorts(port("", tcp, 80))), record("b", 2, withPorts(port("", tcp, 81))),
			record("c", 3, withPorts(port("", tcp, 80))), record("d", 4, withPorts(port("http", tcp, 80)))}, []ask{
			{"a", "", tcp, true}, {"b", "", tcp, false}, {"c", "", tcp, true}, {"d", "http", tcp, false}, {"d", "", tcp, false},
		}},
		"application protocol is only a hint": {records{record("a", 1, withPorts(appPort("http", 80, "x"))), record("b", 2)}, []ask{
			{"b", "http", tcp, true},
		}},
		"left out": {records{record("a", 1), record("b", 2, headless()), record("c", 3, withFamilies(ipv6))}, []ask{
			{"b", "http", tcp, false}, {"c", "http", tcp, false},
		}},
		"classic: only what is common": {records{
			record("a", 1, withClusterSetIP(false, false), withPorts(port("http", tcp, 80), port("https", tcp, 443))),
			record("b", 2, withClusterSetIP(false, false))}, []ask{
			{"a", "http", tcp, true}, {"a", "https", tcp, false}, {"b", "http", tcp, true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := mergetest.Merge(tc.in)
			for _, a := range tc.asks {
				if got := r.CarriesPort(a.cluster, a.name, a.protocol); got != a.want {
					t.Errorf("%s carries %q/%s: %t, want %t", a.cluster, a.name, a.protocol, got, a.want)
				}
			}
		})
	}
}

// Many clusters and many ports take other paths through the code than few, with the same result.
func TestManyClustersManyPorts(t *testing.T) {
	var in records
	for c := range 40 {
		var list []v1alpha1.ServicePort
		for p := range 60 {
			number := c*30 + p // each shares half its ports with the next
			list = append(list, port(fmt.Sprintf("p%d", number), tcp, int32(1000+number)))
		}
		in = append(in, record(fmt.Sprintf("c%02d", c), c, withPorts(list...)))
	}
	r := mergetest.Merge(in)
	if n := len(r.Spec.Ports); n != 1024 {
		t.Errorf("%d ports, want as many as an object may hold", n)
	}
	if r.Spec.Ports[0].Name != "p0" || r.Spec.Ports[1023].Name != "p1023" {
		t.Errorf("ports run from %s to %s", r.Spec.Ports[0].Name, r.Spec.Ports[1023].Name)
	}
	if !r.CarriesPort("c01", "p59", tcp) || r.CarriesPort("c02", "p59", tcp) || r.CarriesPort("c39", "p1200", tcp) {
		t.Error("ports are carried by the wrong clusters")
	}
	if got := conflicts(r); len(got) != 1 || len(r.Conflicts[0].Disagree) != 40 {
		t.Errorf("conflicts: %v", got)
	}
	backwards := make(records, len(in))
	for i := range in {
		backwards[i] = in[i]
		backwards[i].Ports = reversed(in[i].Ports)
	}
	for _, p := range mergetest.Merge(backwards).Spec.Ports {
		if !slices.ContainsFunc(r.Spec.Ports, func(q mcsv1beta1.ServicePort) bool { return q.Name == p.Name }) {
			t.Errorf("which ports fit depends on their order: %s is only in one", p.Name)
		}
	}
	same := mergetest.Merge(records{record("a", 1, withPorts(in[0].Ports...)), record("b", 2, withPorts(reversed(in[0].Ports)...))})
	if got := conflicts(same); got != nil {
		t.Errorf("the order of sixty ports causes a conflict: %v", got)
	}
}

func reversed(in []v1alpha1.ServicePort) []v1alpha1.ServicePort {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}
