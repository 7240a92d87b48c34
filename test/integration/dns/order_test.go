package dns_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/test/harness"
)

// addressesOf returns the addresses of an answer in their order.
func (s *dnsServer) addressesOf(name string) (out []string) {
	s.t.Helper()
	for _, rr := range s.query(name, dns.TypeA).Answer {
		out = append(out, rr.(*dns.A).A.String())
	}
	return out
}

// waitForAddresses waits until a name has n addresses.
func (s *dnsServer) waitForAddresses(t *testing.T, name string, n int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d addresses of %s", n, name), func() error {
		if got := s.addressesOf(name); len(got) != n {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// alwaysFirst returns a check that an address comes first in each of 20 answers.
func (s *dnsServer) alwaysFirst(name, ip string) func() error {
	return func() error {
		for range 20 {
			if got := s.addressesOf(name); got[0] != ip {
				return fmt.Errorf("%v", got)
			}
		}
		return nil
	}
}

// The addresses of an answer come in every order, not only rotated.
func TestAddressOrderIsShuffled(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, db, imported(db, "west", "1", endpoint("10.5.0.1"), endpoint("10.5.0.2")),
		imported(db, localCluster, "1", endpoint("10.5.0.3"), endpoint("10.5.0.4")))
	s := start(t, cp)
	name := "db." + ns + ".svc.clusterset.local"
	s.waitForAddresses(t, name, 4)
	orders := map[string]int{}
	for range 600 {
		orders[fmt.Sprint(s.addressesOf(name))]++
	}
	if len(orders) != 24 { // the chance that one is missing in 600 is 10^-10
		t.Errorf("%d of 24 orders: %v", len(orders), orders)
	}
}

// In classic mode the own cluster comes first while it serves. All others are equal.
func TestClassicPrefersTheOwnCluster(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := classic(ns, "web", port("http", 80))
	own := imported(web, localCluster, "1", endpoint("10.96.0.1"))
	create(t, c, web, own, imported(web, "west", "1", endpoint("10.97.0.1")), imported(web, "north", "1", endpoint("10.98.0.1")))
	name := "web." + ns + ".svc.clusterset.local"
	s, equal := start(t, cp), start(t, cp, "locality none")
	s.waitForAddresses(t, name, 3)
	equal.waitForAddresses(t, name, 3)
	second, first := map[string]int{}, map[string]int{}
	for range 300 {
		got := s.addressesOf(name)
		if got[0] != "10.96.0.1" {
			t.Fatalf("not the own cluster first: %v", got)
		}
		second[got[1]]++
		first[equal.addressesOf(name)[0]]++
	}
	if second["10.97.0.1"] < 90 || second["10.98.0.1"] < 90 {
		t.Errorf("others in second place: %v", second)
	}
	for ip, n := range first {
		if n < 50 || len(first) != 3 {
			t.Errorf("without locality %s came first %d times of 300: %v", ip, n, first)
		}
	}
	notReady(&own.Endpoints[0])
	update(t, c, own)
	s.waitForAddresses(t, name, 2)
}

// Weights decide how often a cluster comes first. Weight 0 leaves it out while another serves.
func TestClassicWeights(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := classic(ns, "web", port("http", 80))
	heavy := withWeight(imported(web, "west", "1", endpoint("10.97.1.1")), "9")
	light := imported(web, "north", "1", endpoint("10.98.1.1"))
	out := withWeight(imported(web, "south", "1", endpoint("10.99.1.1")), "0")
	create(t, c, web, heavy, light, out)
	name := "web." + ns + ".svc.clusterset.local"
	s := start(t, cp)
	s.waitForAddresses(t, name, 2)
	first := map[string]int{}
	for range 400 {
		first[s.addressesOf(name)[0]]++
	}
	if n := first["10.97.1.1"]; n < 320 || n > 395 { // 360 expected; six standard deviations are 36
		t.Errorf("a cluster with nine times the weight came first %d times of 400", n)
	}
	for _, slice := range []*discoveryv1.EndpointSlice{heavy, light} {
		notReady(&slice.Endpoints[0])
		update(t, c, slice)
	}
	harness.Eventually(t, "the cluster with weight 0 when no other serves", func() error {
		if got := s.addressesOf(name); !slices.Equal(got, []string{"10.99.1.1"}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// With `locality headless`, endpoints of the own zone come first, then those of the own cluster.
// Without it all are equal.
func TestHeadlessLocality(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, db,
		imported(db, localCluster, "1", endpoint("10.1.0.1", inZone("a")), endpoint("10.1.0.2", inZone("b"))),
		imported(db, "west", "1", endpoint("10.2.0.1", inZone("a")), endpoint("10.2.0.2", inZone("c"))))
	name := "db." + ns + ".svc.clusterset.local"
	near, plain := start(t, cp, "locality headless", "zone a"), start(t, cp)
	near.waitForAddresses(t, name, 4)
	plain.waitForAddresses(t, name, 4)
	firsts := map[string]bool{}
	for range 100 {
		got := near.addressesOf(name)
		firsts[got[0]] = true
		if got[2] != "10.1.0.2" || got[3] != "10.2.0.2" {
			t.Fatalf("zone a of cluster east sees %v", got)
		}
	}
	if len(firsts) != 2 {
		t.Errorf("only %v came first of two equally near", firsts)
	}
	lasts := map[string]bool{}
	for range 200 {
		lasts[plain.addressesOf(name)[3]] = true
	}
	if len(lasts) != 4 {
		t.Errorf("without locality only %v came last", lasts)
	}
}

// Answers follow changes of the cluster's id; the one in the Corefile takes precedence.
func TestOwnClusterIsFollowed(t *testing.T) {
	cp := harness.Fresh(t, 1)[0]
	c := clientOf(t, cp)
	if err := prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ns := harness.Namespace(t, cp)
	web := classic(ns, "web", port("http", 80))
	create(t, c, web, imported(web, localCluster, "1", endpoint("10.96.2.1")), imported(web, "west", "1", endpoint("10.97.2.1")))
	name := "web." + ns + ".svc.clusterset.local"
	s, fixed := start(t, cp), start(t, cp, "cluster west")
	s.waitForAddresses(t, name, 2)
	fixed.waitForAddresses(t, name, 2)
	harness.Eventually(t, "the cluster with the id first", s.alwaysFirst(name, "10.96.2.1"))
	harness.Eventually(t, "the cluster of the Corefile first", fixed.alwaysFirst(name, "10.97.2.1"))
	property := &aboutv1beta1.ClusterProperty{}
	property.Name = aboutv1beta1.PropertyClusterID
	if err := c.Get(t.Context(), clientKey(property.Name), property); err != nil {
		t.Fatal(err)
	}
	property.Spec.Value = "west"
	update(t, c, property)
	harness.Eventually(t, "the cluster with the new id first", s.alwaysFirst(name, "10.97.2.1"))
	harness.Eventually(t, "the cluster of the Corefile still first", fixed.alwaysFirst(name, "10.97.2.1"))
}
