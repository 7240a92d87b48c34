package reach

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

func sliceOf(protocol corev1.Protocol, port int32, ready bool, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Protocol: ptr.To(protocol), Port: ptr.To(port)}}}
	for _, a := range addresses {
		conditions := discoveryv1.EndpointConditions{Ready: ptr.To(ready)}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: conditions})
	}
	return s
}

func TestChooseEndpoints(t *testing.T) {
	accepted := func(a netip.Addr) bool { return a != netip.MustParseAddr("10.9.9.9") }
	big := sliceOf(corev1.ProtocolTCP, 80, true, "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6")
	services := [][]*discoveryv1.EndpointSlice{
		{big},
		{sliceOf(corev1.ProtocolUDP, 53, true, "10.1.1.1"), sliceOf(corev1.ProtocolTCP, 53, false, "10.1.1.2")},
		{sliceOf(corev1.ProtocolTCP, 5432, true, "10.9.9.9", "fd00::1", "nonsense", "10.1.2.1")},
		{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.3.1"}}}}}, // no ports
		{sliceOf(corev1.ProtocolTCP, 70000, true, "10.1.4.1")},
	}
	for range 50 { // which of several is random
		got := ChooseEndpoints(services, corev1.IPv4Protocol, 4, accepted)
		if len(got) != 4 || !slices.Contains(got, netip.MustParseAddrPort("10.1.2.1:5432")) {
			t.Fatalf("%v, want the endpoint of the small service and three of the large one", got)
		}
		for _, e := range got {
			if e.Port() == 80 && !netip.MustParsePrefix("10.1.0.0/24").Contains(e.Addr()) {
				t.Fatalf("%v", got)
			}
		}
		if distinct := slices.Compact(slices.SortedFunc(slices.Values(got), netip.AddrPort.Compare)); len(distinct) != len(got) {
			t.Fatalf("%v has one twice", got)
		}
	}
	want := []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:5432")}
	if got := ChooseEndpoints(services, corev1.IPv6Protocol, 4, accepted); !slices.Equal(got, want) {
		t.Errorf("IPv6: %v", got)
	}
	if got := ChooseEndpoints(nil, corev1.IPv4Protocol, 4, accepted); got != nil {
		t.Errorf("%v of no services", got)
	}
}
