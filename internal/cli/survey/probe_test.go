package survey

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// One ready TCP endpoint of each other cluster is tried.
func TestProbeTargets(t *testing.T) {
	slice := func(cluster string, protocol corev1.Protocol, ready bool, address string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}},
			Ports:      []discoveryv1.EndpointPort{{Protocol: &protocol, Port: ptr.To[int32](80)}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
	}
	got := probeTargets([]discoveryv1.EndpointSlice{
		slice("west", corev1.ProtocolUDP, true, "10.2.0.1"), slice("west", corev1.ProtocolTCP, false, "10.2.0.2"),
		slice("west", corev1.ProtocolTCP, true, "10.2.0.3"),
		slice("west", corev1.ProtocolTCP, true, "10.2.0.4"), slice("east", corev1.ProtocolTCP, true, "10.1.0.1"),
		slice("north", corev1.ProtocolTCP, true, "10.3.0.1"),
	}, "east")
	if len(got) != 2 || got[0] != (target{"north", "10.3.0.1", 80}) || got[1] != (target{"west", "10.2.0.3", 80}) {
		t.Errorf("%+v", got)
	}
}
