package explain

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// An endpoint without a condition counts as ready, as Kubernetes has it.
func TestCountReady(t *testing.T) {
	slices := []discoveryv1.EndpointSlice{
		{Endpoints: []discoveryv1.Endpoint{{}, {Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}}},
		{Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}},
		{},
	}
	if ready, total := CountReady(slices); ready != 2 || total != 3 {
		t.Errorf("%d of %d", ready, total)
	}
}
