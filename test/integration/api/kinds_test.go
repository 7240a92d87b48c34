package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/harness"
)

var (
	long63 = strings.Repeat("a", 63)
	long64 = strings.Repeat("a", 64)
)

const (
	notCIDR     = "must be an address range such as 243.0.0.0/16"
	notMasked   = "must not have address bits set beyond its prefix length"
	notUnicast  = "must not overlap loopback, link-local, multicast or unspecified addresses"
	notID       = "the name is the cluster id: one RFC-1123 label"
	notUnique   = "port names must be unique"
	nameIsFixed = "the name must be <serviceName>.<serviceNamespace>.<clusterID> of its spec: web.shop.east"
)

// list returns a JSON list of so many elements, each with its number.
func list(n int, element string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf(element, i)
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func TestClusterSet(t *testing.T) {
	cp, c := served(t)
	ns := harness.Namespace(t, cp)
	good := func() *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{"apiVersion":"seamark.dev/v1alpha1","kind":"ClusterSet","metadata":{"name":"prod","namespace":%q},
			"spec":{"clusterSetIP":{"ranges":["243.0.0.0/8","fd00:243::/96"]}}}`, ns))
	}
	ranges := func(value string) []edit { return []edit{{"spec/clusterSetIP/ranges", value}} }
	create(t, c, good, []variant{
		{"good", nil, ""},
		{"name with a dot", []edit{{"metadata/name", `"prod.eu"`}}, "the name of a clusterset must be an RFC-1123 label"},
		{"long name", []edit{{"metadata/name", `"` + long64 + `"`}}, "at most 63 characters"},
		{"longest name", []edit{{"metadata/name", `"` + long63 + `"`}}, ""},
		{"no spec", []edit{{"spec", ""}}, "spec: Required value"},
		{"no ranges", ranges(""), "spec.clusterSetIP.ranges: Required value"},
		{"empty ranges", ranges(`[]`), "should have at least 1 items"},
		{"two of each family", ranges(`["10.0.0.0/8","11.0.0.0/8","fd00::/96","fd01::/96"]`), ""},
		{"a range twice", ranges(`["10.0.0.0/8","10.0.0.0/8"]`), "ranges must not overlap"},
		{"a range in another", ranges(`["10.64.0.0/10","fd00::/96","10.0.0.0/8"]`), "ranges must not overlap"},
		{"too many ranges", ranges(list(17, `"10.%d.0.0/16"`)), "must have at most 16 items"},
		{"not a range", ranges(`["243.0.0.0"]`), notCIDR},
		{"nonsense", ranges(`["everything"]`), notCIDR},
		{"bits beyond the prefix", ranges(`["243.1.2.3/8"]`), notMasked},
		{"loopback", ranges(`["127.1.0.0/16"]`), notUnicast},
		{"around loopback", ranges(`["126.0.0.0/7"]`), notUnicast},
		{"link-local", ranges(`["fe80::/64"]`), notUnicast},
		{"multicast", ranges(`["239.0.0.0/8"]`), notUnicast},
		{"everything", ranges(`["0.0.0.0/0"]`), notUnicast},
		{"block as large as its range", []edit{{"spec/clusterSetIP/blockPrefixLengths", `{"ipv4":8}`}}, "a block must be smaller than the range"},
		{"IPv6 block larger than its range", []edit{{"spec/clusterSetIP/blockPrefixLengths", `{"ipv6":64}`}},
			"a block must be smaller than the range"},
		{"range smaller than the default block", ranges(`["243.0.0.0/24"]`), "raise blockPrefixLengths or widen ranges"},
		{"range of that size with smaller blocks", []edit{{"spec/clusterSetIP/ranges", `["243.0.0.0/24"]`},
			{"spec/clusterSetIP/blockPrefixLengths", `{"ipv4":28}`}}, ""},
		{"block of one address", []edit{{"spec/clusterSetIP/blockPrefixLengths", `{"ipv4":32}`}}, "less than or equal to 30"},
		{"block larger than allowed", []edit{{"spec/clusterSetIP/blockPrefixLengths", `{"ipv4":1}`}}, "greater than or equal to 8"},
		{"IPv6 block too small", []edit{{"spec/clusterSetIP/blockPrefixLengths", `{"ipv6":128}`}}, "less than or equal to 126"},
		{"IPv6 block too large", []edit{{"spec/clusterSetIP/blockPrefixLengths", `{"ipv6":16}`}}, "greater than or equal to 32"},
		{"unknown policy", []edit{{"spec/staleEndpoints", `"Forget"`}}, `supported values: "Failover", "Remove"`},
	})

	stored := good()
	update(t, c, stored, []variant{
		{"nothing", nil, ""},
		{"range removed", ranges(`["243.0.0.0/8"]`), "a range cannot be removed or changed while the clusterset exists"},
		{"range widened", ranges(`["242.0.0.0/7","fd00:243::/96"]`), "a range cannot be removed or changed"},
		{"order of ranges", ranges(`["fd00:243::/96","243.0.0.0/8"]`), ""},
		{"default switched", []edit{{"spec/clusterSetIP/enabledByDefault", `false`}}, ""},
	})

	var seen v1alpha1.ClusterSet
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), &seen); err != nil {
		t.Fatal(err)
	}
	ip := seen.Spec.ClusterSetIP
	if ip.EnabledByDefault == nil || !*ip.EnabledByDefault || ip.BlockPrefixLengths != (v1alpha1.BlockPrefixLengths{IPv4: 18, IPv6: 112}) ||
		seen.Spec.StaleEndpoints != v1alpha1.StaleEndpointsFailover {
		t.Errorf("defaults: %+v", seen.Spec)
	}
}

func TestCluster(t *testing.T) {
	cp, c := served(t)
	ns := harness.Namespace(t, cp)
	good := func() *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{"apiVersion":"seamark.dev/v1alpha1","kind":"Cluster","metadata":{"name":"east","namespace":%q},
			"spec":{"clusterSetIPBlocks":["243.1.0.0/16","fd00:243::1:0/112"],"allowedNamespaces":["shop","kube-system"]}}`, ns))
	}
	name := func(value string) []edit { return []edit{{"metadata/name", `"` + value + `"`}} }
	blocks := func(value string) []edit { return []edit{{"spec/clusterSetIPBlocks", value}} }
	allowed := func(value string) []edit { return []edit{{"spec/allowedNamespaces", value}} }
	create(t, c, good, []variant{
		{"good", nil, ""},
		{"two labels", name("east.eu"), ""},
		{"three labels", name("a.east.eu"), notID},
		{"longest id", name(long63), ""},
		{"long id", name(long64), "at most 63 characters, because it is also a label value"},
		{"long in two labels", name(long63 + ".a"), "at most 63 characters"},
		{"no spec", []edit{{"spec", ""}}, ""},
		{"not a block", blocks(`["243.1.0.1"]`), notCIDR},
		{"bits beyond the prefix", blocks(`["243.1.0.1/16"]`), notMasked},
		{"multicast block", blocks(`["224.1.0.0/16"]`), notUnicast},
		{"two blocks of a family", blocks(`["243.1.0.0/16","243.2.0.0/16","fd00::/112"]`), ""},
		{"too many blocks", blocks(list(33, `"243.%d.0.0/16"`)), "must have at most 32 items"},
		{"namespace twice", allowed(`["shop","shop"]`), "Duplicate value"},
		{"namespace with a dot", allowed(`["a.b"]`), "spec.allowedNamespaces[0] in body should match"},
		{"namespace with a star", allowed(`["team-*"]`), "spec.allowedNamespaces[0] in body should match"},
		{"empty namespace", allowed(`[""]`), "should be at least 1 chars long"},
		{"long namespace", allowed(`["` + long64 + `"]`), "may not be more than 63"},
	})

	stored := good()
	if err := c.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	for _, v := range []variant{
		{"good", []edit{{"status", `{"agentVersion":"v0.1.0","dataPlane":"nftables",
			"podCIDRs":["10.1.0.0/16"],"serviceCIDRs":["10.96.0.0/16"]}`}}, ""},
		{"unknown data plane", []edit{{"status", `{"dataPlane":"magic"}`}}, `supported values: "service", "nftables", "none"`},
		{"pod range", []edit{{"status", `{"podCIDRs":["10.1.2.3/16"]}`}}, notMasked},
		{"service range", []edit{{"status", `{"serviceCIDRs":["ten"]}`}}, notCIDR},
		{"long version", []edit{{"status", `{"agentVersion":"` + long64 + long64 + `a"}`}}, "may not be more than 128"},
	} {
		t.Run("status/"+v.why, func(t *testing.T) {
			o := stored.DeepCopy()
			v.edits[0].apply(t, o)
			check(t, c.Status().Update(t.Context(), o, client.DryRunAll), v.want)
		})
	}
}

func TestExportRecord(t *testing.T) {
	cp, c := served(t)
	ns := harness.Namespace(t, cp)
	good := func() *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{"apiVersion":"seamark.dev/v1alpha1","kind":"ExportRecord",
			"metadata":{"name":"web.shop.east","namespace":%q},
			"spec":{"serviceName":"web","serviceNamespace":"shop","clusterID":"east","exportedAt":"2026-01-02T03:04:05Z","type":"ClusterSetIP",
			"ports":[{"name":"http","port":80,"appProtocol":"kubernetes.io/h2c"},{"name":"dns","port":53,"protocol":"UDP"}],
			"ipFamilies":["IPv4","IPv6"],
			"useClusterSetIP":true,"requestedClusterSetIP":true}}`, ns))
	}
	spec := func(field, value string) []edit { return []edit{{"spec/" + field, value}} }
	create(t, c, good, []variant{
		{"good", nil, ""},
		{"other name", []edit{{"metadata/name", `"web.shop.west"`}}, nameIsFixed},
		{"joined with dashes", []edit{{"metadata/name", `"web-shop-east"`}}, nameIsFixed},
		{"two-label cluster", []edit{{"metadata/name", `"web.shop.east.eu"`}, {"spec/clusterID", `"east.eu"`}}, ""},
		{"three-label cluster", []edit{{"metadata/name", `"web.shop.a.b.c"`}, {"spec/clusterID", `"a.b.c"`}}, "must be one RFC-1123 label"},
		{"long cluster", spec("clusterID", `"`+long64+`"`), "may not be more than 63"},
		{"empty cluster", spec("clusterID", `""`), "should be at least 1 chars long"},
		{"service name with a dot", spec("serviceName", `"web.shop"`), "spec.serviceName in body should match"},
		{"long service name", spec("serviceName", `"`+long64+`"`), "may not be more than 63"},
		{"namespace with a dot", spec("serviceNamespace", `"a.b"`), "spec.serviceNamespace in body should match"},
		{"long namespace", spec("serviceNamespace", `"`+long64+`"`), "may not be more than 63"},
		{"no export time", spec("exportedAt", ""), "spec.exportedAt: Required value"},
		{"export time", spec("exportedAt", `"yesterday"`), "must be of type date-time"},
		{"unknown type", spec("type", `"ExternalName"`), `supported values: "ClusterSetIP", "Headless"`},
		{"no ports", spec("ports", ""), "a service that is not headless has at least one port"},
		{"empty ports", spec("ports", "[]"), "a service that is not headless has at least one port"},
		{"headless without ports", []edit{{"spec/type", `"Headless"`}, {"spec/ports", ""}}, ""},
		{"one unnamed port", spec("ports", `[{"port":80}]`), ""},
		{"unnamed among several", spec("ports", `[{"port":80},{"name":"b","port":81}]`), "every port needs a name when there is more than one"},
		{"same name twice", spec("ports", `[{"name":"a","port":80},{"name":"a","port":81}]`), notUnique},
		{"same number twice", spec("ports", `[{"name":"a","port":80},{"name":"b","port":80,"protocol":"TCP"}]`),
			`Duplicate value: {"port":80,"protocol":"TCP"}`},
		{"same number, other protocol", spec("ports", `[{"name":"a","port":80},{"name":"b","port":80,"protocol":"UDP"}]`), ""},
		{"most ports", spec("ports", ports(256)), ""},
		{"too many ports", spec("ports", ports(257)), "must have at most 256 items"},
		{"port zero", spec("ports", `[{"port":0}]`), "greater than or equal to 1"},
		{"port beyond", spec("ports", `[{"port":65536}]`), "less than or equal to 65535"},
		{"no number", spec("ports", `[{"name":"a"}]`), "port: Required value"},
		{"unknown protocol", spec("ports", `[{"port":1,"protocol":"ICMP"}]`), `supported values: "TCP", "UDP", "SCTP"`},
		{"port name", spec("ports", `[{"port":1,"name":"HTTP"}]`), "spec.ports[0].name in body should match"},
		{"long port name", spec("ports", `[{"port":1,"name":"`+long64+`"}]`), "may not be more than 63"},
		{"application protocol", spec("ports", `[{"port":1,"appProtocol":"a b"}]`), "spec.ports[0].appProtocol in body should match"},
		{"no family", spec("ipFamilies", `[]`), "should have at least 1 items"},
		{"unknown family", spec("ipFamilies", `["IPv5"]`), `supported values: "IPv4", "IPv6"`},
		{"family twice", spec("ipFamilies", `["IPv4","IPv4"]`), "Duplicate value"},
		{"affinity timeout", spec("sessionAffinityConfig", `{"clientIP":{"timeoutSeconds":0}}`), "must be between 1 and 86400"},
		{"long affinity timeout", spec("sessionAffinityConfig", `{"clientIP":{"timeoutSeconds":86401}}`), "must be between 1 and 86400"},
		{"unknown affinity passes through", spec("sessionAffinity", `"Planet"`), ""},
		{"unknown distribution passes through", spec("trafficDistribution", `"PreferSameContinent"`), ""},
		{"long distribution", spec("trafficDistribution", `"`+strings.Repeat("a", 254)+`"`), "may not be more than 253"},
		{"long preference", spec("prefer", `"`+long64+`"`), "may not be more than 63"},
		{"no decision on the clusterset IP", spec("useClusterSetIP", ""), "spec.useClusterSetIP: Required value"},
		{"no request for the clusterset IP", spec("requestedClusterSetIP", ""), "spec.requestedClusterSetIP: Required value"},
	})

	update(t, c, good(), []variant{
		{"nothing", nil, ""},
		{"service name", spec("serviceName", `"api"`), "is immutable"},
		{"namespace", spec("serviceNamespace", `"b"`), "is immutable"},
		{"cluster", spec("clusterID", `"west"`), "is immutable"},
		{"ports", spec("ports", `[{"port":81}]`), ""},
		{"mode that another exporter decided", spec("useClusterSetIP", `false`), ""},
		{"clusterset IPs", spec("clusterSetIPs", `["243.0.0.1","fd00::1"]`), ""},
		{"two clusterset IPs of a family", spec("clusterSetIPs", `["243.0.0.1","243.0.0.2"]`), "at most one clusterset IP per address family"},
		{"clusterset IP in another form", spec("clusterSetIPs", `["fd00:0::1"]`), "must be IP addresses in canonical form"},
		{"no clusterset IP", spec("clusterSetIPs", `["x"]`), "must be IP addresses in canonical form"},
		{"request for the clusterset IP", spec("requestedClusterSetIP", `false`), ""},
	})
}

// TestExportRecordFromGo writes the smallest record of each type from Go: nil slices must not
// become nulls, which the API server rejects.
func TestExportRecordFromGo(t *testing.T) {
	cp, c := served(t)
	ns := harness.Namespace(t, cp)
	record := &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: "db.shop.east", Namespace: ns},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: "db", ServiceNamespace: "shop", ClusterID: "east", ExportedAt: metav1.Now(),
			Type: mcsv1beta1.Headless, IPFamilies: []corev1.IPFamily{"IPv4"},
		},
	}
	if err := c.Create(t.Context(), record); err != nil {
		t.Errorf("headless: %v", err)
	}
	record = &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: "web.shop.east", Namespace: ns},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: "web", ServiceNamespace: "shop", ClusterID: "east", ExportedAt: metav1.Now(),
			Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{"IPv4"}, Ports: []v1alpha1.ServicePort{{Port: 80, Protocol: "TCP"}},
		},
	}
	if err := c.Create(t.Context(), record); err != nil {
		t.Errorf("with an address: %v", err)
	}
}

// TestExportRecordOfAnOlderAgent writes spec.clusterIPs, which revision 1 of the schema had. The
// API server must keep it: an older agent that does not find it sends the record again at each
// reconcile, and takes that for a burst of changes after which it reports. Writing it again must
// change nothing, or an older agent would wake every watcher.
func TestExportRecordOfAnOlderAgent(t *testing.T) {
	cp, c := served(t)
	ns := harness.Namespace(t, cp)
	old := func() *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{"apiVersion":"seamark.dev/v1alpha1","kind":"ExportRecord",
			"metadata":{"name":"web.shop.east","namespace":%q},
			"spec":{"serviceName":"web","serviceNamespace":"shop","clusterID":"east","exportedAt":"2026-01-02T03:04:05Z",
			"type":"ClusterSetIP","ports":[{"name":"http","port":80}],"ipFamilies":["IPv4"],"clusterIPs":["10.96.0.7"],
			"useClusterSetIP":true,"requestedClusterSetIP":true}}`, ns))
	}
	stored := old()
	if err := c.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if ips, found, err := unstructured.NestedSlice(stored.Object, "spec", "clusterIPs"); !slices.Equal(ips, []any{"10.96.0.7"}) || err != nil {
		t.Errorf("the record has clusterIPs %v (found: %t, %v)", ips, found, err)
	}
	again := old()
	again.SetResourceVersion(stored.GetResourceVersion())
	if err := c.Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if got, want := again.GetResourceVersion(), stored.GetResourceVersion(); got != want {
		t.Errorf("the same record written again: resourceVersion %s, want %s", got, want)
	}
}
