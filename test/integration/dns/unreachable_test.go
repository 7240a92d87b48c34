package dns_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// far is a cluster that other tests do not use: which clusters are unreachable holds for all
// services of the shared control plane.
const far = "far"

var (
	far4 = reachable.Key{Cluster: far, Family: corev1.IPv4Protocol}
	far6 = reachable.Key{Cluster: far, Family: corev1.IPv6Protocol}
)

// publishUnreachable returns a function that publishes unreachable clusters as the agent does, and
// deletes the property for none. The property is deleted at the end of the test.
func publishUnreachable(t *testing.T, c client.Client) func(...reachable.Key) {
	t.Helper()
	withdraw := func(ctx context.Context) error {
		return client.IgnoreNotFound(c.Delete(ctx, reachable.Property(nil)))
	}
	t.Cleanup(func() {
		if err := withdraw(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return func(clusters ...reachable.Key) {
		t.Helper()
		unreachable := reachable.Unreachables{}
		for _, key := range clusters {
			unreachable[key] = time.Now()
		}
		want := reachable.Property(unreachable)
		property := &aboutv1beta1.ClusterProperty{}
		err := c.Get(t.Context(), clientKey(want.Name), property)
		switch {
		case client.IgnoreNotFound(err) != nil:
		case len(clusters) == 0:
			err = withdraw(t.Context())
		case err != nil:
			err = c.Create(t.Context(), want)
		default:
			property.Spec.Value = want.Spec.Value
			err = c.Update(t.Context(), property)
		}
		if err != nil {
			t.Fatalf("publish %v: %v", clusters, err)
		}
	}
}

// Endpoints and names of a headless service in a cluster that the agent cannot reach are left out
// where another cluster serves the port in that family, as if the agent had deleted the slices.
func TestUnreachableClusterOfHeadlessService(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, db)
	for i, source := range []string{localCluster, far} {
		create(t, c, imported(db, source, "4", endpoint(fmt.Sprintf("10.31.0.%d", i+1), named("db-0"))),
			imported(db, source, "6", endpoint(fmt.Sprintf("fd00:31::%d", i+1), named("db-0"))))
	}
	only := headless(ns, "only", port("pg", 5432))
	create(t, c, only, imported(only, far, "4", endpoint("10.31.1.2")))
	publish := publishUnreachable(t, c)
	// The option for the own id must not turn off the watch.
	for _, s := range []*dnsServer{start(t, cp), start(t, cp, "cluster "+localCluster, "lighthouse-names")} {
		name, host := "db."+ns+".svc.clusterset.local.", "db-0.far.db."+ns+".svc.clusterset.local."
		records := func(name string, qtype uint16, values ...string) row {
			r := row{name: name, qtype: qtype}
			for _, v := range values {
				r.answer = append(r.answer, name+" 5 IN "+dns.TypeToString[qtype]+" "+v)
			}
			return r
		}
		onlyProvider := records("only."+ns+".svc.clusterset.local.", a, "10.31.1.2")
		all := []row{records(name, a, "10.31.0.1", "10.31.0.2"), records(name, aaaa, "fd00:31::1", "fd00:31::2"),
			records(host, a, "10.31.0.2"), records(host, aaaa, "fd00:31::2"), onlyProvider}
		publish()
		s.check(t, all)
		publish(far4)
		s.check(t, []row{records(name, a, "10.31.0.1"), records(name, aaaa, "fd00:31::1", "fd00:31::2"),
			records(host, a), records(host, aaaa, "fd00:31::2"), onlyProvider})
		publish(far4, far6)
		s.check(t, []row{records(name, a, "10.31.0.1"), records(name, aaaa, "fd00:31::1"),
			{name: host, qtype: a, rcode: nxdomain}, {name: host, qtype: aaaa, rcode: nxdomain},
			{name: "far.db." + ns + ".svc.clusterset.local.", qtype: a, rcode: nxdomain}, onlyProvider})
		publish()
		s.check(t, all)
	}
}

// A classic service leaves out the ClusterIP of an unreachable cluster while another serves. A
// cluster of weight 0 is used rather than an unreachable one.
func TestUnreachableClusterOfClassicService(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := classic(ns, "web", port("http", 80))
	own := withWeight(imported(web, localCluster, "1", endpoint("10.32.0.1")), "0")
	create(t, c, web, own, imported(web, far, "1", endpoint("10.32.0.2")))
	publish := publishUnreachable(t, c)
	publish(far4)
	s := start(t, cp)
	name := "web." + ns + ".svc.clusterset.local."
	expect := func(address string) {
		t.Helper()
		s.check(t, []row{{name: name, qtype: a, answer: []string{name + " 5 IN A " + address}}})
	}
	expect("10.32.0.1")
	notReady(&own.Endpoints[0])
	update(t, c, own)
	expect("10.32.0.2") // no other cluster serves
	publish()
	own.Endpoints[0].Conditions.Ready = nil
	update(t, c, own)
	expect("10.32.0.2") // its weight is not 0
	publish(far4)
	expect("10.32.0.1")
}
