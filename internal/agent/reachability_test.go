package agent

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/reach"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

// What another cluster publishes as its beacons is not trusted: the checks are those of endpoints.
func TestBeaconsOfOthersAreChecked(t *testing.T) {
	check := imports.AddressCheck{
		ClusterID: "west", ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
		IsNodeAddress: func(a netip.Addr) bool { return a == netip.MustParseAddr("192.168.0.1") },
		WhyNot: func(cluster string, a netip.Addr) string {
			if cluster != "east" || netip.MustParsePrefix("10.3.0.0/16").Contains(a) {
				return "is inside the ranges of cluster north"
			}
			return ""
		},
	}
	v4, v6 := reach.Key{Cluster: "east", Family: corev1.IPv4Protocol}, reach.Key{Cluster: "east", Family: corev1.IPv6Protocol}
	key := make([]byte, wire.KeySize)
	of := func(port int32, key []byte, ips ...string) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Status: v1alpha1.ClusterStatus{
			Beacons: &v1alpha1.Beacons{Port: port, Key: key},
		}}
		for _, ip := range ips {
			c.Status.Beacons.Addresses = append(c.Status.Beacons.Addresses, v1alpha1.BeaconAddress{IP: ip})
		}
		return c
	}
	for name, c := range map[string]struct {
		cluster *v1alpha1.Cluster
		key     reach.Key
		want    []string
		refused string
		all     bool
	}{
		"no member":              {nil, v4, nil, "", false},
		"an earlier agent":       {&v1alpha1.Cluster{}, v4, nil, "", false},
		"one family":             {of(9446, key, "10.1.0.1", "fd00::1", "10.1.0.2"), v4, []string{"10.1.0.1:9446", "10.1.0.2:9446"}, "", false},
		"the other":              {of(9446, key, "10.1.0.1", "fd00::1"), v6, []string{"[fd00::1]:9446"}, "", false},
		"another port":           {of(30000, key, "10.1.0.1"), v4, []string{"10.1.0.1:30000"}, "", false},
		"a reserved port":        {of(53, key, "10.1.0.1"), v4, nil, "", false},
		"a port beyond all":      {of(65536, key, "10.1.0.1"), v4, nil, "", false},
		"a short key":            {of(9446, key[1:], "10.1.0.1"), v4, nil, "", false},
		"no address":             {of(9446, key, "beacon.example"), v4, nil, "", false},
		"loopback":               {of(9446, key, "127.0.0.1"), v4, nil, "127.0.0.1 is a loopback address", true},
		"metadata":               {of(9446, key, "169.254.169.254"), v4, nil, "169.254.169.254 is a link-local address", true},
		"IPv4 in IPv6":           {of(9446, key, "::ffff:127.0.0.1"), v6, nil, "::ffff:127.0.0.1 is not in plain form", true},
		"a node of this cluster": {of(9446, key, "192.168.0.1"), v4, nil, "192.168.0.1 is the address of a node of this cluster", true},
		"a Service of this cluster": {
			of(9446, key, "10.96.0.1"), v4, nil,
			"10.96.0.1 is in the range of this cluster's own Services: it would reach another Service, or none", true,
		},
		"another member's": {
			of(9446, key, "10.3.0.1", "10.1.0.1"), v4, []string{"10.1.0.1:9446"}, "10.3.0.1 is inside the ranges of cluster north", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			target, refused := targetOf(c.cluster, c.key, check.WhyRefused)
			var got []string
			for _, b := range target.Beacons {
				got = append(got, b.Address.String())
			}
			if !slices.Equal(got, c.want) || refused != c.refused || target.Refused != c.all {
				t.Errorf("%v, refused %q (all: %t); want %v, %q, %t", got, refused, target.Refused, c.want, c.refused, c.all)
			}
		})
	}
	many := of(9446, key)
	for range 100 {
		many.Status.Beacons.Addresses = append(many.Status.Beacons.Addresses, v1alpha1.BeaconAddress{IP: "10.1.0.1"})
	}
	if target, _ := targetOf(many, v4, check.WhyRefused); len(target.Beacons) > 2*objects.MaxBeacons {
		t.Errorf("%d beacons are probed", len(target.Beacons))
	}
}

func TestImportSources(t *testing.T) {
	s := newImportSources("west")
	si := func(name string, clusters ...string) *mcsv1beta1.ServiceImport {
		out := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark},
		}}
		for _, c := range clusters {
			out.Status.Clusters = append(out.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: c})
		}
		return out
	}
	expect := func(want ...string) {
		t.Helper()
		if got := s.clusters(); !slices.Equal(got, want) {
			t.Errorf("imports from %v, want %v", got, want)
		}
	}
	s.observe(si("web", "east", "west"), false)
	s.observe(si("db", "east", "north"), false)
	foreign := si("other", "south")
	foreign.Labels = nil
	s.observe(foreign, false)
	expect("east", "north")
	east := reach.Key{Cluster: "east", Family: corev1.IPv4Protocol}
	if got := s.servicesOf(east, 10); len(got) != 2 {
		t.Errorf("services %v", got)
	}
	if got := s.servicesOf(east, 1); len(got) != 1 {
		t.Errorf("services %v", got)
	}
	if got := s.importedFrom([]string{"east", "north"}); len(got) != 2 || got[0].Name != "db" || got[1].Name != "web" {
		t.Errorf("services %v", got)
	}
	s.observe(si("db", "east", "north"), false) // nothing changed
	single := si("single", "south")
	single.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	s.observe(single, false)
	v4, v6 := reach.Key{Cluster: "south", Family: corev1.IPv4Protocol}, reach.Key{Cluster: "south", Family: corev1.IPv6Protocol}
	if s.has(v4) || !s.has(v6) {
		t.Errorf("a service with IPv6 only: IPv4 %t, IPv6 %t", s.has(v4), s.has(v6))
	}
	s.observe(single, true)
	s.observe(si("db", "north"), false)
	expect("east", "north")
	s.observe(si("web", "east"), true)
	expect("north")
	s.observe(si("db"), false)
	if expect(); len(s.byService) > 0 {
		t.Errorf("services are left: %v", s.byService)
	}
}

func TestFailoversAreCountedOnce(t *testing.T) {
	var c failoverCounter
	counted := map[imports.Usability]int{}
	update := func(unusable map[string]imports.Usability) {
		c.update(unusable, func(cause imports.Usability) { counted[cause]++ })
	}
	update(map[string]imports.Usability{"dead": imports.Silent}) // as an earlier leader left it
	update(map[string]imports.Usability{"dead": imports.Silent, "east": imports.Unreachable})
	update(map[string]imports.Usability{"dead": imports.Unreachable, "east": imports.Unreachable})
	update(map[string]imports.Usability{"dead": imports.Unreachable})
	update(map[string]imports.Usability{"dead": imports.Unreachable, "north": imports.Silent, "east": imports.Unreachable})
	if counted[imports.Unreachable] != 2 || counted[imports.Silent] != 1 {
		t.Errorf("counted %v, want two of unreachable clusters and one by lease", counted)
	}
}
