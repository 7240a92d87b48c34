package imports

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
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

// Which endpoints of silent clusters are dropped is decided for each port and family, by the
// endpoints that this cluster would really use. Cluster a is silent in every row.
func TestStalePorts(t *testing.T) {
	const node = "192.0.2.7"
	for name, test := range map[string]struct {
		records []*v1alpha1.ExportRecord
		slices  []*discoveryv1.EndpointSlice
		held    []*discoveryv1.EndpointSlice
		policy  v1alpha1.StaleEndpointsPolicy
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
			in.StaleEndpoints, in.Stale = test.policy, map[string]bool{"a": true, "silent": true}
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
