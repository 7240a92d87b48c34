package member

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

func beaconPod(ip, node string, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)}}
	if node != "" {
		e.NodeName = ptr.To(node)
	}
	return e
}

func beaconSlice(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: objects.AgentNamespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: objects.BeaconService},
	}, Endpoints: endpoints}
}

func TestBeaconAddresses(t *testing.T) {
	b := &Beacons{slices: map[string]*discoveryv1.EndpointSlice{}}
	changes := 0
	b.changed = func() { changes++ }
	b.set(beaconSlice("a", beaconPod("10.1.0.3", "n1", true), beaconPod("10.1.0.1", "n1", true), beaconPod("10.1.0.2", "n2", false)), false)
	b.set(beaconSlice("b", beaconPod("fd00::1", "n1", true), beaconPod("10.1.0.4", "", true), beaconPod("not an address", "n1", true)), false)
	want := []v1alpha1.BeaconAddress{
		{IP: "10.1.0.1", Node: objects.NodeHash("n1")}, {IP: "10.1.0.4"}, {IP: "fd00::1", Node: objects.NodeHash("n1")},
		{IP: "10.1.0.3", Node: objects.NodeHash("n1")}, // the second on its node
	}
	if diff := cmp.Diff(want, b.Addresses()); diff != "" {
		t.Error(diff)
	}
	if changes != 2 {
		t.Errorf("%d changes, want 2", changes)
	}
	// The same pods in another order, and a pod that is not ready: nothing changed.
	b.set(beaconSlice("a", beaconPod("10.1.0.1", "n1", true), beaconPod("10.1.0.3", "n1", true), beaconPod("10.1.0.9", "n2", false)), false)
	if changes != 2 || cmp.Diff(want, b.Addresses()) != "" {
		t.Errorf("%d changes, addresses %v", changes, b.Addresses())
	}
	b.set(beaconSlice("b"), true)
	if got := b.Addresses(); len(got) != 2 || changes != 3 {
		t.Errorf("%d changes, addresses %v", changes, got)
	}
}

// Of many beacons those on different nodes are published.
func TestBeaconAddressesAreBounded(t *testing.T) {
	b := &Beacons{slices: map[string]*discoveryv1.EndpointSlice{}, changed: func() {}}
	var pods []discoveryv1.Endpoint
	for i := range 50 {
		v4, v6 := fmt.Sprintf("10.1.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1)
		pods = append(pods, beaconPod(v4, fmt.Sprintf("n%d", i/10), true), beaconPod(v6, "n", true))
	}
	b.set(beaconSlice("a", pods...), false)
	nodes, v6 := map[string]bool{}, 0
	for _, a := range b.Addresses() {
		nodes[a.Node] = true
		if len(a.IP) > 4 && a.IP[:4] == "fd00" {
			v6++
		}
	}
	if got := len(b.Addresses()); got != 2*objects.MaxBeacons || v6 != objects.MaxBeacons || len(nodes) != 6 {
		t.Errorf("%d addresses, %d of them IPv6, on %d nodes", got, v6, len(nodes))
	}
}

// A Secret that was lost gets the key back that other clusters use.
func TestNewBeaconKey(t *testing.T) {
	published := make([]byte, wire.KeySize)
	published[0] = 42
	if got := newBeaconKey(&v1alpha1.Beacons{Key: published}); !cmp.Equal(got, published) {
		t.Errorf("%x", got)
	}
	for _, bad := range []*v1alpha1.Beacons{nil, {}, {Key: published[1:]}} {
		first, second := newBeaconKey(bad), newBeaconKey(bad)
		if len(first) != wire.KeySize || cmp.Equal(first, second) {
			t.Errorf("%x and %x", first, second)
		}
	}
}
