package dns

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/dns/zone"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// unreachableOver4 returns clusters that are unreachable over IPv4.
func unreachableOver4(clusters ...string) reachable.Unreachables {
	out := reachable.Unreachables{}
	for _, c := range clusters {
		out[reachable.Key{Cluster: c, Family: corev1.IPv4Protocol}] = time.Now()
	}
	return out
}

func TestLeaveOutUnreachable(t *testing.T) {
	slice := func(cluster, address string, ports ...string) *zone.Slice {
		s := &zone.Slice{Cluster: cluster}
		for _, p := range ports {
			s.Ports = append(s.Ports, zone.Port{Name: p, Protocol: "TCP", Number: 80})
		}
		if address != "" {
			s.Endpoints = []zone.Endpoint{{Addr: netip.MustParseAddr(address)}}
		}
		return s
	}
	for name, test := range map[string]struct {
		west  *zone.Slice
		other *zone.Slice
		want  []string // the ports of west that stay
		gone  bool     // the whole slice is left out
	}{
		"another serves it":               {slice("west", "10.0.0.1", "a"), slice("east", "10.1.0.1", "a"), nil, true},
		"another serves one port":         {slice("west", "10.0.0.1", "a", "b"), slice("east", "10.1.0.1", "b"), []string{"a"}, false},
		"another has nothing ready":       {slice("west", "10.0.0.1", "a"), slice("east", "", "a"), []string{"a"}, false},
		"another serves the other family": {slice("west", "10.0.0.1", "a"), slice("east", "fd00::1", "a"), []string{"a"}, false},
		"another is unreachable too":      {slice("west", "10.0.0.1", "a"), slice("south", "10.1.0.1", "a"), []string{"a"}, false},
		"reachable over IPv6":             {slice("west", "fd00::1", "a"), slice("east", "fd00::2", "a"), []string{"a"}, false},
		"no ports":                        {slice("west", "10.0.0.1"), slice("east", "10.1.0.1"), nil, true},
		"no ports, another has some":      {slice("west", "10.0.0.1"), slice("east", "10.1.0.1", "a"), nil, false},
	} {
		before := *test.west
		got := leaveOutUnreachable([]*zone.Slice{test.west, test.other}, unreachableOver4("west", "south"))
		i := slices.IndexFunc(got, func(s *zone.Slice) bool { return s.Cluster == "west" })
		var ports []string
		if i >= 0 {
			for _, p := range got[i].Ports {
				ports = append(ports, p.Name)
			}
		}
		if test.gone != (i < 0) || !slices.Equal(ports, test.want) {
			t.Errorf("%s: left out: %v, ports %v", name, i < 0, ports)
		}
		if diff := cmp.Diff(&before, test.west, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s: the given slice was changed:\n%s", name, diff)
		}
	}
}

// The rule is that of package reachable: to leave out and then reduce gives the same as to reduce
// and then leave out.
func TestSameRuleAsTheAgent(t *testing.T) {
	clusters := []string{"east", "west", "north"}
	rapid.Check(t, func(t *rapid.T) {
		unreachable := unreachableOver4(rapid.SliceOfDistinct(rapid.SampledFrom(clusters), rapid.ID).Draw(t, "unreachable")...)
		var all []*discoveryv1.EndpointSlice
		for i := range rapid.IntRange(0, 5).Draw(t, "slices") {
			s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: map[string]string{
				mcsv1beta1.LabelSourceCluster: rapid.SampledFrom(clusters).Draw(t, "cluster")}}}
			address := fmt.Sprintf("10.0.0.%d", i+1)
			if s.AddressType = discoveryv1.AddressTypeIPv4; rapid.Bool().Draw(t, "IPv6") {
				s.AddressType, address = discoveryv1.AddressTypeIPv6, fmt.Sprintf("fd00::%d", i+1)
			}
			for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", ""}), rapid.ID).Draw(t, "ports") {
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p, Port: ptr.To[int32](80)})
			}
			s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(rapid.Bool().Draw(t, "ready"))}}}
			all = append(all, s)
		}
		want, got := reducedAll(t, reachable.LeaveOut(all, unreachable)), leaveOutUnreachable(reducedAll(t, all), unreachable)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("of %d slices stay (-agent +DNS):\n%s", len(all), diff)
		}
	})
}

// reducedAll reduces slices and leaves out those without ready endpoints, which no answer needs.
func reducedAll(t *rapid.T, all []*discoveryv1.EndpointSlice) (out []*zone.Slice) {
	for _, s := range all {
		o, err := reduceSlice(s)
		if err != nil {
			t.Fatal(err)
		}
		if reduced := o.(*sliceObject).slice; len(reduced.Endpoints) > 0 {
			out = append(out, reduced)
		}
	}
	return out
}

// stateOf returns a state with headless services of two clusters: all have an endpoint in east,
// every part-th has one in west. No service is dirty.
func stateOf(services, part int) *state {
	s := newState(zone.Locality{})
	for i := range services {
		name := fmt.Sprintf("svc-%d", i)
		s.setImport(&importObject{Service: zone.Service{Namespace: "ns", Name: name, Kind: zone.Headless}})
		for at, cluster := range []string{"east", "west"} {
			if at == 1 && i%part > 0 {
				continue
			}
			o := &sliceObject{service: zone.Key("ns", name), slice: &zone.Slice{Cluster: cluster}}
			o.Namespace, o.Name = "ns", name+cluster
			o.slice.Ports = []zone.Port{{Name: "a", Protocol: "TCP", Number: 1}}
			o.slice.Endpoints = []zone.Endpoint{{Addr: netip.AddrFrom4([4]byte{10, byte(at), byte(i >> 8), byte(i)})}}
			s.setSlice(o)
		}
	}
	clear(s.dirty)
	return s
}

// Only services of a cluster that became unreachable or reachable are rebuilt.
func TestOnlyServicesOfTheClusterAreRebuilt(t *testing.T) {
	s := stateOf(4, 2)
	expect := func(what string, now reachable.Unreachables, dirty ...string) {
		t.Helper()
		clear(s.dirty)
		s.setUnreachable(now)
		if got := slices.Sorted(maps.Keys(s.dirty)); !slices.Equal(got, dirty) {
			t.Errorf("%s: rebuilds %v, want %v", what, got, dirty)
		}
	}
	expect("a cluster of two services", unreachableOver4("WEST"), "svc-0.ns", "svc-2.ns")
	expect("the same, at another time", unreachableOver4("west"))
	expect("another family", reachable.Unreachables{{Cluster: "west", Family: "IPv4"}: {}, {Cluster: "east", Family: "IPv6"}: {}})
	expect("a cluster without services", unreachableOver4("west", "north"))
	expect("reachable again", nil, "svc-0.ns", "svc-2.ns")
}

func TestJobsLeaveOutUnreachable(t *testing.T) {
	s := stateOf(1, 1)
	for _, test := range []struct {
		unreachable []string
		want        []string
	}{{nil, []string{"east", "west"}}, {[]string{"west"}, []string{"east"}}, {[]string{"east", "west"}, []string{"east", "west"}}} {
		s.setUnreachable(unreachableOver4(test.unreachable...))
		s.markDirty("svc-0.ns")
		j, _ := s.nextJob()
		var got []string
		for _, slice := range j.service.Slices {
			got = append(got, slice.Cluster)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v unreachable: the answers are of %v, want %v", test.unreachable, got, test.want)
		}
	}
}

// BenchmarkUnreachable measures how long it takes until all answers leave out a cluster.
func BenchmarkUnreachable(b *testing.B) {
	for _, services := range []int{1000, 5000, 10_000} {
		for _, part := range []int{1, 5} {
			b.Run(fmt.Sprintf("%d-of-%d", services/part, services), func(b *testing.B) {
				o := zone.Options{Name: "clusterset.local.", TTL: 5}
				c := &controller{zone: zone.New(o), options: o, state: stateOf(services, part), ctx: context.Background()}
				c.state.setLocality(func(l *zone.Locality) { l.Cluster = "here" })
				c.build()
				c.zone.Publish()
				for i := range b.N {
					now := unreachableOver4("west")
					if i%2 == 1 {
						now = nil
					}
					c.state.setUnreachable(now)
					c.build()
				}
			})
		}
	}
}
