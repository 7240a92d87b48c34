package imports

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// ports makes a record export these TCP ports.
func ports(names ...string) func(*v1alpha1.ExportRecordSpec) {
	numbers := map[string]int32{"http": 80, "metrics": 9000}
	return func(r *v1alpha1.ExportRecordSpec) {
		r.Ports = nil
		for _, n := range names {
			r.Ports = append(r.Ports, v1alpha1.ServicePort{Name: n, Protocol: corev1.ProtocolTCP, Port: numbers[n]})
		}
	}
}

func dual(r *v1alpha1.ExportRecordSpec) { r.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"} }

// withPorts gives a slice these TCP ports.
func withPorts(s *discoveryv1.EndpointSlice, names ...string) *discoveryv1.EndpointSlice {
	s.Ports = nil
	for _, n := range names {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &n, Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)})
	}
	return s
}

func ipv6(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.AddressType = discoveryv1.AddressTypeIPv6
	return s
}

// reached parses states: "CLUSTER/FAMILY STATE".
func reached(states ...string) objects.ReachStates {
	out := objects.ReachStates{}
	for _, text := range states {
		key, state, _ := strings.Cut(text, " ")
		cluster, family, _ := strings.Cut(key, "/")
		out[reachable.Key{Cluster: cluster, Family: corev1.IPFamily(family)}] = objects.ReachState(state)
	}
	return out
}

func TestUsability(t *testing.T) {
	v4, v6 := reachable.Key{Cluster: "a", Family: corev1.IPv4Protocol}, reachable.Key{Cluster: "a", Family: corev1.IPv6Protocol}
	for _, test := range []struct {
		lease          string
		ipv4, ipv6     objects.ReachState
		want4, want6   Usability
		whyItIsDecided string
	}{
		{"live", objects.ReachabilityUnknown, objects.ReachabilityUnknown, Usable, Usable, "nothing speaks against it"},
		{"live", objects.Reachable, objects.Reachable, Usable, Usable, "it answers"},
		{"live", objects.Unreachable, objects.Reachable, Unreachable, Usable, "families are apart"},
		{"live", objects.Unreachable, objects.ReachabilityUnknown, Unreachable, Usable, "its lease is live"},
		{"live", objects.Unreachable, objects.Unreachable, Unreachable, Unreachable, "a live lease does not carry traffic"},
		{"stale", objects.ReachabilityUnknown, objects.ReachabilityUnknown, Silent, Silent, "only the lease says something"},
		{"stale", objects.Reachable, objects.Reachable, Usable, Usable, "it is silent but serves"},
		{"stale", objects.Reachable, objects.ReachabilityUnknown, Usable, Usable, "it answers in another family"},
		{"stale", objects.Unreachable, objects.ReachabilityUnknown, Unreachable, Silent, "no family answers"},
		{"stale", objects.Unreachable, objects.Reachable, Unreachable, Usable, "families are apart"},
		{"stale", objects.Unreachable, objects.Unreachable, Unreachable, Unreachable, "evidence comes before leases"},
	} {
		states := objects.ReachStates{v4: test.ipv4, v6: test.ipv6}
		stale := map[string]bool{"a": test.lease == "stale"}
		if got4, got6 := UsabilityOf(v4, states, stale), UsabilityOf(v6, states, stale); got4 != test.want4 || got6 != test.want6 {
			t.Errorf("lease %s, %s and %s: %q and %q, want %q and %q: %s",
				test.lease, test.ipv4, test.ipv6, got4, got6, test.want4, test.want6, test.whyItIsDecided)
		}
	}
}

// Which endpoints of silent clusters are dropped is decided for each port and family, by the
// endpoints that this cluster would really use. The leases of a and silent are stale in every row.
func TestUnusablePorts(t *testing.T) {
	const node = "192.0.2.7"
	for name, test := range map[string]struct {
		records []*v1alpha1.ExportRecord
		slices  []*discoveryv1.EndpointSlice
		held    []*discoveryv1.EndpointSlice
		policy  v1alpha1.StaleEndpointsPolicy
		reached objects.ReachStates
		want    []string // of cluster a: family and port
		message string
	}{
		"a port that only the silent cluster has stays": {
			records: []*v1alpha1.ExportRecord{record("a", 2, ports("http", "metrics")), record("b", 1, ports("metrics"))},
			slices: []*discoveryv1.EndpointSlice{
				withPorts(slice("a", "s", "10.1.0.1"), "http", "metrics"), withPorts(slice("b", "s", "10.2.0.1"), "metrics"),
			},
			want: []string{"IPv4 http"},
			message: "cluster a has not been heard from; its last known endpoints are kept for http (IPv4), " +
				"because no other cluster serves that port",
		},
		"Remove drops it too": {
			records: []*v1alpha1.ExportRecord{record("a", 2, ports("http", "metrics")), record("b", 1, ports("metrics"))},
			slices: []*discoveryv1.EndpointSlice{
				withPorts(slice("a", "s", "10.1.0.1"), "http", "metrics"), withPorts(slice("b", "s", "10.2.0.1"), "metrics"),
			},
			policy: v1alpha1.StaleEndpointsRemove,
		},
		"a family that only the silent cluster has stays": {
			records: []*v1alpha1.ExportRecord{record("a", 2, dual), record("b", 1, dual)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), ipv6(slice("a", "6", "fd00:1::1")), slice("b", "s", "10.2.0.1")},
			want:    []string{"IPv6 http"},
			message: "cluster a has not been heard from; its last known endpoints are kept for http (IPv6), " +
				"because no other cluster serves that port",
		},
		"endpoints whose addresses are refused do not serve": {
			records: []*v1alpha1.ExportRecord{record("a", 2), record("b", 1)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), slice("b", "s", node)},
			want:    []string{"IPv4 http"}, message: "cluster a has not been heard from; its" + keptAll,
		},
		"a port that lost a conflict does not serve": {
			records: []*v1alpha1.ExportRecord{
				record("a", 2), record("b", 1, func(r *v1alpha1.ExportRecordSpec) { r.Ports[0].Port = 81 }),
			},
			slices: []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), slice("b", "s", "10.2.0.1")},
			want:   []string{"IPv4 http"}, message: "cluster a has not been heard from; its" + keptAll,
		},
		"another silent cluster does not serve": {
			records: []*v1alpha1.ExportRecord{record("a", 2), record("silent", 1)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), slice("silent", "s", "10.2.0.1")},
			want:    []string{"IPv4 http"}, message: "clusters a and silent have not been heard from; their" + keptAll,
		},
		"a headless service without ports": {
			records: []*v1alpha1.ExportRecord{
				record("a", 2, ports(), func(r *v1alpha1.ExportRecordSpec) { r.Type = mcsv1beta1.Headless }),
				record("b", 1, ports(), func(r *v1alpha1.ExportRecordSpec) { r.Type = mcsv1beta1.Headless }),
			},
			slices: []*discoveryv1.EndpointSlice{withPorts(slice("a", "s", "10.1.0.1")), withPorts(slice("b", "s", "10.2.0.1"))},
		},
		"a held cluster serves": {
			records: []*v1alpha1.ExportRecord{record("a", 2)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1")},
			held:    []*discoveryv1.EndpointSlice{slice("b", "s", "10.2.0.1")},
		},
		"a cluster that is reached serves, whatever its lease": {
			records: []*v1alpha1.ExportRecord{record("a", 2), record("b", 1)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), slice("b", "s", "10.2.0.1")},
			policy:  v1alpha1.StaleEndpointsRemove,
			reached: reached("a/IPv4 reachable"), want: []string{"IPv4 http"},
		},
		"a cluster that is reached in another family serves": {
			records: []*v1alpha1.ExportRecord{record("a", 2, dual), record("b", 1, dual)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), ipv6(slice("a", "6", "fd00:1::1")), slice("b", "s", "10.2.0.1")},
			reached: reached("a/IPv6 reachable"), want: []string{"IPv4 http", "IPv6 http"},
		},
		"unreachable in one family only": {
			records: []*v1alpha1.ExportRecord{record("a", 2, dual), record("b", 1, dual)},
			slices: []*discoveryv1.EndpointSlice{
				slice("a", "s", "10.1.0.1"), ipv6(slice("a", "6", "fd00:1::1")), slice("b", "s", "10.2.0.1"), ipv6(slice("b", "6", "fd00:2::1")),
			},
			reached: reached("a/IPv4 unreachable", "a/IPv6 reachable"), want: []string{"IPv6 http"},
		},
		"unreachable, and no other cluster serves": {
			records: []*v1alpha1.ExportRecord{record("a", 2)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1")},
			policy:  v1alpha1.StaleEndpointsRemove, // judges by leases only
			reached: reached("a/IPv4 unreachable"), want: []string{"IPv4 http"},
			message: "cluster a cannot be reached from here; its" + keptAll,
		},
		"unreachable beside a silent cluster": {
			records: []*v1alpha1.ExportRecord{record("a", 2), record("silent", 1)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), slice("silent", "s", "10.2.0.1")},
			reached: reached("a/IPv4 unreachable", "silent/IPv4 unknown"), want: []string{"IPv4 http"},
			message: "cluster a cannot be reached from here, and cluster silent has not been heard from; their" + keptAll,
		},
		"unreachable in one family, silent in the other": {
			records: []*v1alpha1.ExportRecord{record("a", 2, dual)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1"), ipv6(slice("a", "6", "fd00:1::1"))},
			reached: reached("a/IPv4 unreachable"), want: []string{"IPv4 http", "IPv6 http"},
			message: "cluster a cannot be reached from here; its" + keptAll,
		},
		"two unreachable clusters": {
			records: []*v1alpha1.ExportRecord{
				record("a", 2, ports("http", "metrics")), record("c", 1, ports("http", "metrics")), record("b", 1, ports("http")),
			},
			slices: []*discoveryv1.EndpointSlice{
				withPorts(slice("a", "s", "10.1.0.1"), "http", "metrics"), withPorts(slice("c", "s", "10.3.0.1"), "http", "metrics"),
				withPorts(slice("b", "s", "10.2.0.1"), "http"),
			},
			reached: reached("a/IPv4 unreachable", "c/IPv4 unreachable"), want: []string{"IPv4 metrics"},
			message: "clusters a and c cannot be reached from here; their last known endpoints are kept for metrics (IPv4), " +
				"because no other cluster serves that port",
		},
		"a held cluster that is unreachable does not serve": {
			records: []*v1alpha1.ExportRecord{record("a", 2)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", "10.1.0.1")},
			held:    []*discoveryv1.EndpointSlice{slice("b", "s", "10.2.0.1")},
			reached: reached("b/IPv4 unreachable"), want: []string{"IPv4 http"},
			message: "cluster a has not been heard from; its" + keptAll,
		},
		"nothing to keep": {
			records: []*v1alpha1.ExportRecord{record("a", 2)},
			slices:  []*discoveryv1.EndpointSlice{slice("a", "s", node)},
			want:    []string{"IPv4 http"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(test.records, test.slices...)
			in.HeldSlices = test.held
			in.Families = []corev1.IPFamily{"IPv4", "IPv6"}
			in.StaleEndpoints, in.Stale, in.Reached = test.policy, map[string]bool{"a": true, "silent": true}, test.reached
			in.IsNodeAddress = func(a netip.Addr) bool { return a == netip.MustParseAddr(node) }
			plan := Decide(in)
			var got []string
			for _, s := range plan.Slices {
				if s.Labels[mcsv1beta1.LabelSourceCluster] == "a" {
					for _, p := range s.Ports {
						got = append(got, string(s.AddressType)+" "+*p.Name)
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if got := messageOf(plan, v1alpha1.ServiceImportConditionStaleEndpointsKept); got != test.message {
				t.Errorf("StaleEndpointsKept: %q, want %q", got, test.message)
			}
		})
	}
}
