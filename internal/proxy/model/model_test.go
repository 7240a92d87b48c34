package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

var here = Location{Cluster: "east", Node: "n1", Zone: "z1", Region: "r1"}

func imported(change ...func(*mcsv1beta1.ServiceImport)) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: []string{"243.0.0.1"},
			Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	for _, f := range change {
		f(si)
	}
	return si
}

// endpointAt is an endpoint's number and location.
type endpointAt struct {
	number             int
	node, zone, region string
	conditions         discoveryv1.EndpointConditions
}

func slice(cluster string, places ...endpointAt) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "s-" + cluster, Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
	}
	regions := ""
	for _, p := range places {
		e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", p.number)}, Conditions: p.conditions}
		if p.node != "" {
			e.NodeName = ptr.To(p.node)
		}
		if p.zone != "" {
			e.Zone = ptr.To(p.zone)
		}
		if p.region != "" {
			regions += fmt.Sprintf(",%q:%q", p.node, p.region)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	if regions != "" {
		s.Annotations = map[string]string{v1alpha1.AnnotationRegion: "r9", v1alpha1.AnnotationNodeRegions: "{" + regions[1:] + "}"}
	}
	return s
}

// numbers returns the last bytes of a port's endpoints.
func numbers(p ruleset.Port) []int {
	var out []int
	for _, e := range p.Endpoints {
		out = append(out, int(e.Addr().As4()[3]))
	}
	return out
}

func distribution(value string) func(*mcsv1beta1.ServiceImport) {
	return func(si *mcsv1beta1.ServiceImport) { si.Spec.TrafficDistribution = &value }
}

func prefer(value string) func(*mcsv1beta1.ServiceImport) {
	return func(si *mcsv1beta1.ServiceImport) {
		si.Annotations = map[string]string{v1alpha1.AnnotationPrefer: value}
	}
}

func local(si *mcsv1beta1.ServiceImport) {
	si.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
}

var (
	notReady    = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}
	terminating = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	ended       = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false), Terminating: ptr.To(true)}
	warmingUp   = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true)}
)

func TestSelectedEndpoints(t *testing.T) {
	nothing := func(*mcsv1beta1.ServiceImport) {}
	node, zone, near := distribution("PreferSameNode"), distribution("PreferSameZone"), distribution("PreferClose")
	// 1 on this node, 2 in this zone of another cluster, 3 in this region of another cluster, 4 in
	// this cluster, 5 far away.
	east := slice("east", endpointAt{number: 1, node: "n1", zone: "z8", region: "r8"},
		endpointAt{number: 4, node: "n4", zone: "z4", region: "r4"})
	west := slice("west", endpointAt{number: 2, node: "n1", zone: "z1", region: "r8"},
		endpointAt{number: 3, node: "n3", zone: "z3", region: "r1"}, endpointAt{number: 5, node: "n5", zone: "z5"})
	everything := []*discoveryv1.EndpointSlice{west, east}
	only := func(cluster string, p ...endpointAt) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{slice(cluster, p...)}
	}
	for _, test := range []struct {
		name   string
		prefer func(*mcsv1beta1.ServiceImport)
		slices []*discoveryv1.EndpointSlice
		want   []int
	}{
		{"no preference: all", nothing, everything, []int{1, 2, 3, 4, 5}},
		{"node", node, everything, []int{1}},
		{"zone, of any cluster", zone, everything, []int{2}},
		{"close is zone", near, everything, []int{2}},
		{"region", prefer("region"), everything, []int{3}},
		{"cluster", prefer("cluster"), everything, []int{1, 4}},
		{"the field wins over the annotation", func(si *mcsv1beta1.ServiceImport) { prefer("cluster")(si); zone(si) }, everything, []int{2}},
		{"an unknown field leaves it to the annotation",
			func(si *mcsv1beta1.ServiceImport) { prefer("cluster")(si); distribution("PreferRack")(si) }, everything, []int{1, 4}},
		{"an unknown annotation has no effect", prefer("continent"), everything, []int{1, 2, 3, 4, 5}},
		{"node falls to zone", node, only("west", endpointAt{number: 2, node: "n1", zone: "z1"}, endpointAt{number: 5}), []int{2}},
		{"node falls to region", node, only("west", endpointAt{number: 3, node: "n3", region: "r1"}, endpointAt{number: 5}), []int{3}},
		{"zone falls to cluster", zone, append(only("west", endpointAt{number: 5}), slice("east", endpointAt{number: 4, node: "n4"})), []int{4}},
		{"node falls to anywhere", node, only("west", endpointAt{number: 5}, endpointAt{number: 6}), []int{5, 6}},
		{"a tier without a ready endpoint is passed over", node,
			append(only("east", endpointAt{number: 1, node: "n1", conditions: notReady}), west), []int{2}},
		{"a terminating one near does not beat a ready one far", node,
			append(only("east", endpointAt{number: 1, node: "n1", conditions: terminating}), slice("west", endpointAt{number: 5})), []int{5}},
		{"nothing ready: terminating ones by tier", node,
			append(only("east", endpointAt{number: 1, node: "n1", conditions: terminating}),
				slice("west", endpointAt{number: 5, conditions: terminating})), []int{1}},
		{"one that no longer serves is never used", nothing,
			only("east", endpointAt{number: 1, conditions: ended}, endpointAt{number: 2, conditions: notReady}), nil},
		{"serving but neither ready nor terminating is not used", nothing, only("east", endpointAt{number: 1, conditions: warmingUp}), nil},
		{"local", local, everything, []int{1}},
		{"a node of another cluster is not local", local, only("west", endpointAt{number: 2, node: "n1"}), nil},
		{"local and terminating", local, only("east", endpointAt{number: 1, node: "n1", conditions: terminating},
			endpointAt{number: 4, node: "n4"}), []int{1}},
	} {
		r := Build(imported(test.prefer), test.slices, here)
		if len(r.Service.Ports) != 1 || !slices.Equal(numbers(r.Service.Ports[0]), test.want) {
			t.Errorf("%s: %+v, want %v", test.name, r.Service.Ports, test.want)
		}
	}
}

// A node with an unknown location finds no endpoint near, and still serves.
func TestUnknownLocation(t *testing.T) {
	far := []*discoveryv1.EndpointSlice{slice("east", endpointAt{number: 1, node: "n1", zone: "z1"}), slice("", endpointAt{number: 2})}
	r := Build(imported(distribution("PreferSameNode")), far, Location{})
	if got := numbers(r.Service.Ports[0]); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("reached %v", got)
	}
	if len(r.Service.Hairpin) != 2 {
		t.Errorf("any of them may be on this node, but hairpin is %v", r.Service.Hairpin)
	}
}

func TestHairpinIsForThisNode(t *testing.T) {
	r := Build(imported(), []*discoveryv1.EndpointSlice{
		slice("east", endpointAt{number: 1, node: "n1"}, endpointAt{number: 2, node: "n2"}, endpointAt{number: 3}),
		slice("west", endpointAt{number: 4, node: "n1"}),
	}, here)
	var got []string
	for _, a := range r.Service.Hairpin {
		got = append(got, a.String())
	}
	if strings.Join(got, " ") != "10.0.0.1 10.0.0.3" {
		t.Errorf("hairpin for %v", got)
	}
}

func TestSilence(t *testing.T) {
	for _, test := range []struct {
		name   string
		slices []*discoveryv1.EndpointSlice
		want   bool
	}{
		{"another node has one", []*discoveryv1.EndpointSlice{slice("west", endpointAt{number: 1})}, true},
		{"no endpoint is ready", []*discoveryv1.EndpointSlice{slice("west", endpointAt{number: 1, conditions: notReady})}, false},
		{"this node has one", []*discoveryv1.EndpointSlice{slice("east", endpointAt{number: 1, node: "n1"})}, false},
	} {
		if r := Build(imported(local), test.slices, here); r.Service.Ports[0].Silent != test.want {
			t.Errorf("%s: silent is %t", test.name, !test.want)
		}
	}
}

func TestPortsMatchByNameAndProtocol(t *testing.T) {
	si := imported(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.Ports = []mcsv1beta1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53},
			{Name: "web", Port: 80}}
	})
	s := slice("east", endpointAt{number: 1})
	s.Ports = []discoveryv1.EndpointPort{
		{Name: ptr.To("dns"), Port: ptr.To[int32](5353), Protocol: ptr.To(corev1.ProtocolUDP)},
		{Name: ptr.To("dns-tcp"), Port: ptr.To[int32](5354)},
		{Name: ptr.To("web"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolUDP)}, // another protocol: not this port
	}
	r := Build(si, []*discoveryv1.EndpointSlice{s}, here)
	want := map[string]string{"243.0.0.1:53/UDP": "[10.0.0.1:5353]", "243.0.0.1:53/TCP": "[10.0.0.1:5354]", "243.0.0.1:80/TCP": "[]"}
	for _, p := range r.Service.Ports {
		if got := fmt.Sprint(p.Endpoints); got != want[p.String()] {
			t.Errorf("%s leads to %s", p.Frontend, got)
		}
	}
	unnamed := imported(func(si *mcsv1beta1.ServiceImport) { si.Spec.Ports[0].Name = "" })
	s.Ports = []discoveryv1.EndpointPort{{Port: ptr.To[int32](8080)}}
	if r := Build(unnamed, []*discoveryv1.EndpointSlice{s}, here); len(r.Service.Ports[0].Endpoints) != 1 {
		t.Error("an unnamed port does not match an unnamed port")
	}
}

func TestAffinity(t *testing.T) {
	with := func(seconds *int32) *mcsv1beta1.ServiceImport {
		return imported(func(si *mcsv1beta1.ServiceImport) {
			si.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			si.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: seconds}}
		})
	}
	for want, si := range map[uint32]*mcsv1beta1.ServiceImport{
		0: imported(), 10800: with(nil), 7: with(ptr.To[int32](7)), ruleset.MaxAffinity: with(ptr.To[int32](1 << 30)),
	} {
		if got := Build(si, nil, here).Service.Ports[0].Affinity; got != want {
			t.Errorf("affinity of %d seconds, want %d", got, want)
		}
	}
}

func TestNothingToDo(t *testing.T) {
	for name, si := range map[string]*mcsv1beta1.ServiceImport{
		"no import": nil,
		"headless":  imported(func(si *mcsv1beta1.ServiceImport) { si.Spec.Type = mcsv1beta1.Headless }),
		"classic":   imported(func(si *mcsv1beta1.ServiceImport) { si.Spec.IPs = nil }),
	} {
		if r := Build(si, []*discoveryv1.EndpointSlice{slice("east", endpointAt{number: 1})},
			here); len(r.Service.VIPs)+len(r.Service.Ports)+len(r.Refused) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestRefusals(t *testing.T) {
	si := imported(func(si *mcsv1beta1.ServiceImport) {
		si.Spec.IPs = []string{"243.0.0.1", "243.0.0.2", "::1", "fd00::1%eth0", "x"}
		si.Spec.Ports = []mcsv1beta1.ServicePort{{Name: "http", Port: 80}, {Name: "zero"}, {Name: "big", Port: 65536},
			{Name: "same", Port: 80}, {Name: "q", Port: 90, Protocol: "QUIC"}}
	})
	s := slice("east", endpointAt{number: 1}, endpointAt{number: 1})
	for _, bad := range []string{"127.0.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "fd00::1", "nonsense"} {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{bad}})
	}
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{})
	zero := slice("west", endpointAt{number: 2})
	zero.Ports[0].Port = ptr.To[int32](0)
	zero.Annotations = map[string]string{v1alpha1.AnnotationNodeRegions: "no json"}
	regions := slice("north", endpointAt{number: 3})
	regions.Annotations = zero.Annotations
	r := Build(si, []*discoveryv1.EndpointSlice{s, zero, regions}, here)
	if len(r.Service.Ports) != 1 || !slices.Equal(numbers(r.Service.Ports[0]), []int{1, 3}) {
		t.Errorf("used: %+v", r.Service)
	}
	want := `an endpoint of slice s-east has no address
annotation seamark.dev/node-regions of slice s-north is not a JSON object of strings
clusterset IP "::1" is a loopback address
clusterset IP "fd00::1%eth0" is not in plain form
clusterset IP "x" is not an IP address
clusterset IP 243.0.0.2 is the second of its family
endpoint "0.0.0.0" of slice s-east is unspecified
endpoint "127.0.0.1" of slice s-east is a loopback address
endpoint "169.254.1.1" of slice s-east is a link-local address
endpoint "224.0.0.1" of slice s-east is a multicast address
endpoint "255.255.255.255" of slice s-east is the broadcast address
endpoint "nonsense" of slice s-east is not an IP address
endpoint 10.0.0.1 is in slice s-east more than once
endpoint fd00::1 of slice s-east is not IPv4
endpoint port 0 of slice s-west is not between 1 and 65535
port 0/TCP is not between 1 and 65535
port 65536/TCP is not between 1 and 65535
port 80/TCP is listed twice, by number or by name
port 90 has protocol "QUIC", which is not TCP, UDP or SCTP`
	if got := strings.Join(r.Refused, "\n"); got != want {
		t.Errorf("refused:\n%s", got)
	}
}

// The same objects in another order give the same service, so a restart changes nothing.
func TestOrderDoesNotMatter(t *testing.T) {
	a, b := slice("east", endpointAt{number: 3}, endpointAt{number: 1}), slice("west", endpointAt{number: 2}, endpointAt{number: 1})
	one, two := Build(imported(), []*discoveryv1.EndpointSlice{a, b}, here), Build(imported(), []*discoveryv1.EndpointSlice{b, a}, here)
	if fmt.Sprint(one) != fmt.Sprint(two) {
		t.Errorf("%+v and %+v", one, two)
	}
	if got := one.Service.Ports[0].Endpoints; len(got) != 3 || got[0] != netip.MustParseAddrPort("10.0.0.1:8080") {
		t.Errorf("endpoints %v", got)
	}
}
