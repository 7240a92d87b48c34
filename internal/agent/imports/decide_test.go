package imports

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/objects"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// record is what a cluster exports of shop/web; age is in hours, so that a larger one wins.
func record(cluster string, age int, change ...func(*v1alpha1.ExportRecordSpec)) *v1alpha1.ExportRecord {
	r := &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: objects.RecordName(web, cluster), Labels: objects.Labels(web, cluster)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: web.Name, ServiceNamespace: web.Namespace, ClusterID: v1alpha1.ClusterID(cluster),
			ExportedAt: metav1.NewTime(time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour)),
			Type:       mcsv1beta1.ClusterSetIP,
			Ports:      []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true,
		},
	}
	for _, c := range change {
		c(&r.Spec)
	}
	return r
}

func slice(cluster, source string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: objects.SliceName(web, cluster, source), Labels: objects.Labels(web, cluster)},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return s
}

func unready(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	for i := range s.Endpoints {
		s.Endpoints[i].Conditions.Ready = ptr.To(false)
	}
	return s
}

// claiming makes a record claim clusterset IPs.
func claiming(ips ...string) func(*v1alpha1.ExportRecordSpec) {
	return func(r *v1alpha1.ExportRecordSpec) { r.ClusterSetIPs = ips }
}

func inRanges(addr netip.Addr) bool {
	return netip.MustParsePrefix("243.0.0.0/8").Contains(addr) || netip.MustParsePrefix("fd00:243::/64").Contains(addr)
}

func input(records []*v1alpha1.ExportRecord, slices ...*discoveryv1.EndpointSlice) Input {
	return Input{
		Settings: Settings{
			ClusterID: "here", Families: []corev1.IPFamily{corev1.IPv4Protocol},
			DataPlane: objects.DataPlaneOf(v1alpha1.DataPlaneNone),
		},
		Service: web, Records: records, Slices: slices,
		Remembered:    []netip.Addr{netip.MustParseAddr("243.0.0.9"), netip.MustParseAddr("fd00:243::9")},
		IsNodeAddress: func(netip.Addr) bool { return false }, WhyNot: func(string, netip.Addr) string { return "" },
		Accepts: inRanges, BlockOwner: func(netip.Addr) string { return "a" },
		IsNode: func(string) bool { return false },
	}
}

// own is what this cluster has of shop/web, with these endpoints.
func own(addresses ...string) exports.Input {
	source := slice("here", "s", addresses...)
	source.Name = "web-1"
	return exports.Input{
		Settings: exports.Settings{ClusterID: "here"},
		Service:  &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}},
		Slices:   []*discoveryv1.EndpointSlice{source}, RegionOf: func(string) string { return "" },
	}
}

// addressesOf returns the addresses that the plan imports, by cluster.
func addressesOf(p Plan) map[string][]string {
	out := map[string][]string{}
	for _, s := range p.Slices {
		for _, e := range s.Endpoints {
			source := s.Labels[mcsv1beta1.LabelSourceCluster]
			out[source] = append(out[source], e.Addresses...)
		}
	}
	return out
}

func readyCondition(p Plan) metav1.Condition { return p.Import.Status.Conditions[0] }

// messageOf returns the message of a condition that is True, or "" if there is none.
func messageOf(p Plan, t mcsv1beta1.ServiceImportConditionType) string {
	if c := meta.FindStatusCondition(p.Import.Status.Conditions, string(t)); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	return ""
}

const keptAll = " last known endpoints are kept, because no other cluster serves this service"

func TestStaleClusters(t *testing.T) {
	both := []*v1alpha1.ExportRecord{record("a", 2), record("b", 1)}
	a, b := slice("a", "s", "10.1.0.1"), slice("b", "s", "10.2.0.1")
	for name, test := range map[string]struct {
		records []*v1alpha1.ExportRecord
		slices  []*discoveryv1.EndpointSlice
		stale   []string
		policy  v1alpha1.StaleEndpointsPolicy
		want    map[string][]string
		message string // of StaleEndpointsKept
	}{
		"none is stale": {
			both, []*discoveryv1.EndpointSlice{a, b}, nil, "",
			map[string][]string{"a": {"10.1.0.1"}, "b": {"10.2.0.1"}}, "",
		},
		"another cluster serves it: dropped": {
			both, []*discoveryv1.EndpointSlice{a, b}, []string{"a"}, v1alpha1.StaleEndpointsFailover,
			map[string][]string{"b": {"10.2.0.1"}}, "",
		},
		"sole exporter: kept and reported": {
			both[:1], []*discoveryv1.EndpointSlice{a}, []string{"a"}, v1alpha1.StaleEndpointsFailover,
			map[string][]string{"a": {"10.1.0.1"}}, "cluster a has not been heard from; its" + keptAll,
		},
		"the other exports it but serves nothing: kept": {
			both, []*discoveryv1.EndpointSlice{a, unready(slice("b", "s", "10.2.0.1"))}, []string{"a"}, v1alpha1.StaleEndpointsFailover,
			map[string][]string{"a": {"10.1.0.1"}, "b": {"10.2.0.1"}}, "cluster a has not been heard from; its" + keptAll,
		},
		"both stale: both kept": {
			both, []*discoveryv1.EndpointSlice{a, b}, []string{"a", "b"}, v1alpha1.StaleEndpointsFailover,
			map[string][]string{"a": {"10.1.0.1"}, "b": {"10.2.0.1"}}, "clusters a and b have not been heard from; their" + keptAll,
		},
		"Remove drops a sole exporter too": {
			both[:1], []*discoveryv1.EndpointSlice{a}, []string{"a"}, v1alpha1.StaleEndpointsRemove,
			map[string][]string{}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(test.records, test.slices...)
			in.StaleEndpoints, in.Stale = test.policy, map[string]bool{}
			for _, c := range test.stale {
				in.Stale[c] = true
			}
			plan := Decide(in)
			if diff := cmp.Diff(test.want, addressesOf(plan)); diff != "" {
				t.Error(diff)
			}
			if c := readyCondition(plan); c.Status != metav1.ConditionTrue || c.Reason != "Ready" || c.Message != "the service is imported" {
				t.Errorf("ready: %+v", c)
			}
			if got := messageOf(plan, v1alpha1.ServiceImportConditionStaleEndpointsKept); got != test.message {
				t.Errorf("StaleEndpointsKept: %q, want %q", got, test.message)
			}
			if len(plan.Import.Status.Clusters) != len(test.records) {
				t.Errorf("clusters: %v", plan.Import.Status.Clusters)
			}
		})
	}
}

// Lesson: bad addresses were imported as they came.
func TestRefusedAddresses(t *testing.T) {
	for address, why := range map[string]string{
		"127.0.0.1":       "127.0.0.1 from cluster a is a loopback address",
		"127.9.9.9":       "127.9.9.9 from cluster a is a loopback address",
		"169.254.169.254": "169.254.169.254 from cluster a is a link-local address",
		"224.0.0.1":       "224.0.0.1 from cluster a is a multicast address",
		"0.0.0.0":         "0.0.0.0 from cluster a is unspecified",
		"255.255.255.255": "255.255.255.255 from cluster a is the broadcast address",
		"192.0.2.7":       "192.0.2.7 from cluster a is the address of a node of this cluster",
		"10.96.0.1":       "10.96.0.1 from cluster a is in the range of this cluster's own Services: it would reach another Service, or none",
		"10.9.9.9":        "10.9.9.9 from cluster a is inside the ranges of cluster b",
		"::1":             "::1 from cluster a is not IPv4",
		"not-an-address":  `"not-an-address" from cluster a is not an IP address`,
		"":                `"" from cluster a is not an IP address`,
	} {
		in := input([]*v1alpha1.ExportRecord{record("a", 1)}, slice("a", "s", "10.1.0.1", address))
		in.IsNodeAddress = func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.7") }
		in.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
		in.WhyNot = func(cluster string, a netip.Addr) string {
			if cluster == "a" && a == netip.MustParseAddr("10.9.9.9") {
				return "is inside the ranges of cluster b"
			}
			return ""
		}
		plan := Decide(in)
		if diff := cmp.Diff(map[string][]string{"a": {"10.1.0.1"}}, addressesOf(plan)); diff != "" {
			t.Errorf("%s: %s", address, diff)
		}
		if !slices.Equal(plan.Refused, []string{why}) {
			t.Errorf("%s: refused %q, want %q", address, plan.Refused, why)
		}
		if got := messageOf(plan, v1alpha1.ServiceImportConditionAddressesRefused); got != "not imported: "+strings.Join(plan.Refused, "; ") {
			t.Errorf("%s: AddressesRefused says %q", address, got)
		}
		if c := readyCondition(plan); c.Status != metav1.ConditionTrue || c.Message != "the service is imported" {
			t.Errorf("%s: ready: %+v", address, c)
		}
	}
	for _, address := range []string{"::1", "fe80::1", "ff02::1", "::", "::ffff:10.0.0.1", "fe80::1%eth0"} {
		s := slice("a", "s", address)
		s.AddressType = discoveryv1.AddressTypeIPv6
		ipv6 := func(r *v1alpha1.ExportRecordSpec) { r.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }
		in := input([]*v1alpha1.ExportRecord{record("a", 1, ipv6)}, s)
		in.Families = []corev1.IPFamily{corev1.IPv6Protocol}
		if plan := Decide(in); len(addressesOf(plan)) != 0 || len(plan.Refused) != 1 {
			t.Errorf("%s was imported", address)
		}
	}
}

// A cluster's own host-network pods have the addresses of its nodes; those of others do not.
func TestOwnNodeAddressesAreImported(t *testing.T) {
	in := input([]*v1alpha1.ExportRecord{record("here", 1)})
	in.Own = own("192.0.2.7")
	in.IsNodeAddress = func(netip.Addr) bool { return true }
	in.WhyNot = func(string, netip.Addr) string { return "is another's" }
	if plan := Decide(in); len(plan.Refused) != 0 || len(addressesOf(plan)["here"]) != 1 {
		t.Errorf("refused: %v", plan.Refused)
	}
}

// The broker's copy of this cluster's endpoints may be behind.
func TestOwnEndpointsComeFromOwnSlices(t *testing.T) {
	in := input([]*v1alpha1.ExportRecord{record("here", 1)}, slice("here", "s", "10.0.0.1"))
	in.Own = own("10.0.0.2")
	if diff := cmp.Diff(map[string][]string{"here": {"10.0.0.2"}}, addressesOf(Decide(in))); diff != "" {
		t.Error(diff)
	}
}

// The addresses of a derived Service are known after it is written; the rest of the plan stays.
func TestAddressesOfTheDerivedService(t *testing.T) {
	in := input([]*v1alpha1.ExportRecord{record("a", 1)}, slice("a", "s", "10.1.0.1"))
	in.DataPlane = objects.DataPlaneOf(v1alpha1.DataPlaneService)
	plan := Decide(in)
	if c := readyCondition(plan); c.Status != metav1.ConditionFalse || len(plan.Import.Spec.IPs) > 0 {
		t.Errorf("before the Service exists: %+v, import %+v", c, plan.Import)
	}
	in.Existing, in.Derived = plan.Import, plan.Derived.Want.DeepCopy()
	in.Derived.Spec.ClusterIPs = []string{"10.96.0.5"}
	after := plan.withAddresses(in)
	if c := readyCondition(after); c.Status != metav1.ConditionTrue || !slices.Equal(after.Import.Spec.IPs, []string{"10.96.0.5"}) {
		t.Errorf("with the Service: %+v, ips %v", c, after.Import.Spec.IPs)
	}
	if got := after.Import.Annotations[v1alpha1.AnnotationClusterSetIPs]; got != "243.0.0.9,fd00:243::9" {
		t.Errorf("recorded clusterset IPs: %q", got)
	}
	if diff := cmp.Diff(Decide(in).Import, after.Import); diff != "" {
		t.Errorf("deciding anew gives another import: %s", diff)
	}
}

// Lesson: a newer cluster's port with the same name and another number still got traffic, because
// slices match ports by name.
func TestPortThatLostIsNotInTheSlices(t *testing.T) {
	loser := record("b", 1, func(r *v1alpha1.ExportRecordSpec) {
		r.Ports = []v1alpha1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 81}, {Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9000},
		}
	})
	s := slice("b", "s", "10.2.0.1")
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{
		Name: ptr.To("metrics"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](9000),
	})
	plan := Decide(input([]*v1alpha1.ExportRecord{record("a", 2), loser}, slice("a", "s", "10.1.0.1"), s))
	got := map[string][]string{}
	for _, s := range plan.Slices {
		for _, p := range s.Ports {
			got[s.Labels[mcsv1beta1.LabelSourceCluster]] = append(got[s.Labels[mcsv1beta1.LabelSourceCluster]], *p.Name)
		}
	}
	if diff := cmp.Diff(map[string][]string{"a": {"http"}, "b": {"metrics"}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFamilies(t *testing.T) {
	v6 := record("a", 1, func(r *v1alpha1.ExportRecordSpec) { r.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} })
	plan := Decide(input([]*v1alpha1.ExportRecord{v6}))
	c := readyCondition(plan)
	if c.Status != metav1.ConditionFalse || c.Reason != "IPFamilyNotSupported" ||
		c.Message != "the service has only IPv6, this cluster only IPv4" {
		t.Errorf("ready: %+v", c)
	}
	dual := record("a", 1, func(r *v1alpha1.ExportRecordSpec) {
		r.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	})
	plan = Decide(input([]*v1alpha1.ExportRecord{dual}))
	if c := readyCondition(plan); c.Status != metav1.ConditionTrue ||
		!slices.Equal(plan.Import.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol}) {
		t.Errorf("dual stack service in an IPv4 cluster: %+v, families %v", c, plan.Import.Spec.IPFamilies)
	}
}

func TestClusterSetIPs(t *testing.T) {
	for name, test := range map[string]struct {
		families []corev1.IPFamily
		ips      []string // that the record claims
		want     []string
		wantFam  []corev1.IPFamily

		remembered []string
	}{
		"in range": {
			families: []corev1.IPFamily{"IPv4"}, ips: []string{"243.1.0.5"}, want: []string{"243.1.0.5"}, wantFam: []corev1.IPFamily{"IPv4"},
		},
		"outside the range": {families: []corev1.IPFamily{"IPv4"}, ips: []string{"10.0.0.1"}, wantFam: []corev1.IPFamily{"IPv4"}},
		"no address":        {families: []corev1.IPFamily{"IPv4"}, ips: []string{"nonsense"}, wantFam: []corev1.IPFamily{"IPv4"}},
		"order of families": {
			families: []corev1.IPFamily{"IPv6", "IPv4"}, ips: []string{"243.1.0.5", "fd00:243::7"},
			want: []string{"fd00:243::7", "243.1.0.5"}, wantFam: []corev1.IPFamily{"IPv6", "IPv4"},
		},
		"one is enough": {
			families: []corev1.IPFamily{"IPv4", "IPv6"}, ips: []string{"243.1.0.5"}, want: []string{"243.1.0.5"}, wantFam: []corev1.IPFamily{"IPv4"},
		},
		"a claim precedes what is remembered": {
			families: []corev1.IPFamily{"IPv4", "IPv6"}, ips: []string{"243.1.0.5"}, remembered: []string{"243.1.0.6", "fd00:243::7"},
			want: []string{"243.1.0.5", "fd00:243::7"}, wantFam: []corev1.IPFamily{"IPv4", "IPv6"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			families := func(r *v1alpha1.ExportRecordSpec) { r.IPFamilies = test.families }
			in := input([]*v1alpha1.ExportRecord{record("a", 1, claiming(test.ips...), families)})
			in.Families, in.Remembered = []corev1.IPFamily{"IPv4", "IPv6"}, objects.ParseAddresses(test.remembered)
			spec := Decide(in).Import.Spec
			if !slices.Equal(spec.IPs, test.want) || !slices.Equal(spec.IPFamilies, test.wantFam) {
				t.Errorf("ips %v families %v", spec.IPs, spec.IPFamilies)
			}
		})
	}
}

func TestReservedNamespaces(t *testing.T) {
	for namespace, allowed := range map[string][]string{"kube-system": nil, "seamark-system": nil, "kube-public": {"shop"}} {
		in := input([]*v1alpha1.ExportRecord{record("a", 1)})
		in.Service.Namespace, in.AllowedNamespaces = namespace, allowed
		if plan := Decide(in); plan.Import != nil || plan.Waits != objects.WaitForPermission {
			t.Errorf("%s was imported, or waits for %q", namespace, plan.Waits)
		}
	}
	in := input([]*v1alpha1.ExportRecord{record("a", 1)})
	in.Service.Namespace, in.AllowedNamespaces = "kube-system", []string{"kube-system"}
	if Decide(in).Import == nil {
		t.Error("a namespace that the admin allowed was not imported")
	}
	in = input([]*v1alpha1.ExportRecord{record("a", 1)})
	in.AllowedNamespaces = []string{"other"}
	if Decide(in).Import == nil {
		t.Error("the namespaces allowed for exports limited the imports")
	}
}

func TestAServiceWithoutRecordsIsNotImported(t *testing.T) {
	if plan := Decide(input(nil, slice("a", "s", "10.1.0.1"))); plan.Import != nil || len(plan.Slices) != 0 {
		t.Errorf("imported %+v", plan)
	}
}

func TestImportNames(t *testing.T) {
	plan := Decide(input([]*v1alpha1.ExportRecord{record("a", 1)},
		slice("a", "one", "10.1.0.1"), slice("a", "two", "10.1.0.2"), slice("b", "one", "10.9.0.1")))
	if len(plan.Slices) != 2 {
		t.Fatalf("%d slices: a cluster without a record must not be imported", len(plan.Slices))
	}
	if plan.Slices[0].Name == plan.Slices[1].Name {
		t.Error("two source slices share a name")
	}
	for _, s := range plan.Slices {
		if s.Labels[discoveryv1.LabelServiceName] == "web" {
			t.Error("an imported slice belongs to the cluster's own Service")
		}
		if s.Labels[discoveryv1.LabelManagedBy] != objects.ManagedBy || s.Labels[mcsv1beta1.LabelServiceName] != "web" {
			t.Errorf("labels: %v", s.Labels)
		}
	}
	if plan.Import.Spec.Ports == nil || plan.Import.Status.EndpointSliceObjects != mcsv1beta1.EndpointSliceObjectsPresent {
		t.Errorf("import: %+v", plan.Import)
	}
}

// Which controllers and servers of the cluster are to read an imported slice, by its labels.
func TestLabelsOfSlices(t *testing.T) {
	headless := func(r *v1alpha1.ExportRecordSpec) { r.Type = mcsv1beta1.Headless }
	classic := func(r *v1alpha1.ExportRecordSpec) { r.UseClusterSetIP, r.RequestedClusterSetIP = false, false }
	const ofService, noProxy, noDNS = discoveryv1.LabelServiceName, corev1.IsHeadlessService, v1alpha1.LabelClusterSetIP
	for name, c := range map[string]struct {
		change    func(*v1alpha1.ExportRecordSpec)
		dataPlane v1alpha1.DataPlane
		want      map[string]string
	}{
		"derived Service":        {nil, "service", map[string]string{ofService: objects.DerivedServiceName("web"), noDNS: ""}},
		"clusterset IP":          {nil, "nftables", map[string]string{ofService: "a.web", noProxy: "", noDNS: ""}},
		"headless":               {headless, "service", map[string]string{ofService: "a.web", noProxy: ""}},
		"headless with nftables": {headless, "nftables", map[string]string{ofService: "a.web", noProxy: ""}},
		"classic":                {classic, "service", map[string]string{ofService: "a.web", noProxy: ""}},
		"classic, no data plane": {classic, "none", map[string]string{ofService: "a.web", noProxy: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			r := record("a", 1)
			if c.change != nil {
				c.change(&r.Spec)
			}
			in := input([]*v1alpha1.ExportRecord{r}, slice("a", "s", "10.1.0.1"))
			in.DataPlane = objects.DataPlaneOf(c.dataPlane)
			plan := Decide(in)
			if len(plan.Slices) != 1 {
				t.Fatalf("%d slices", len(plan.Slices))
			}
			c.want[mcsv1beta1.LabelServiceName], c.want[mcsv1beta1.LabelSourceCluster] = "web", "a"
			c.want[discoveryv1.LabelManagedBy] = objects.ManagedBy
			if diff := cmp.Diff(c.want, plan.Slices[0].Labels); diff != "" {
				t.Error(diff)
			}
		})
	}
}
