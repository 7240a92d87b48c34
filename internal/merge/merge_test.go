package merge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

type records = []v1alpha1.ExportRecordSpec

// Short names for the tables.
var (
	record           = mergetest.Record
	port             = mergetest.Port
	appPort          = mergetest.AppPort
	withPorts        = mergetest.Ports
	headless         = mergetest.Headless
	withFamilies     = mergetest.Families
	withAffinity     = mergetest.Affinity
	sticky           = mergetest.Sticky
	withPolicy       = mergetest.InternalPolicy
	withDistribution = mergetest.Distribution
	withLabels       = mergetest.Labels
	withAnnotations  = mergetest.Annotations
	withClusterSetIP = mergetest.ClusterSetIP
	withPrefer       = mergetest.Prefer
)

const (
	tcp  = corev1.ProtocolTCP
	udp  = corev1.ProtocolUDP
	ipv4 = corev1.IPv4Protocol
	ipv6 = corev1.IPv6Protocol
)

// exported compares results by their exported fields.
var exported = cmp.Options{cmpopts.IgnoreUnexported(merge.Result{}, merge.Conflict{})}

// ports returns the ports of a result as "http 80/TCP, dns 53/UDP", in their order.
func ports(r merge.Result) string {
	texts := make([]string, len(r.Spec.Ports))
	for i, p := range r.Spec.Ports {
		texts[i] = strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
		if p.AppProtocol != nil {
			texts[i] += " " + *p.AppProtocol
		}
	}
	return strings.Join(texts, ", ")
}

// conflicts returns the conflicts of a result as "PortConflict: b, c".
func conflicts(r merge.Result) []string {
	var texts []string
	for _, c := range r.Conflicts {
		ids := make([]string, len(c.Disagree))
		for i, d := range c.Disagree {
			ids[i] = d.Cluster
		}
		texts = append(texts, string(c.Reason)+": "+strings.Join(ids, ", "))
	}
	return texts
}

func TestMergeNothing(t *testing.T) {
	r := mergetest.Merge(nil)
	if !r.Empty() {
		t.Error("the merge of no records is not empty")
	}
	if diff := cmp.Diff(merge.Result{}, r, exported); diff != "" {
		t.Error(diff)
	}
	if status, reason, _ := r.Condition(); status != metav1.ConditionFalse || reason != "NoConflicts" {
		t.Errorf("condition = %s/%s", status, reason)
	}
	if r.CarriesPort("a", "http", tcp) {
		t.Error("a cluster carries a port although there is no record")
	}
}

func TestMergeOne(t *testing.T) {
	got := mergetest.Merge(records{record("a", 1,
		withPorts(appPort("http", 80, "kubernetes.io/h2c"), port("dns", udp, 53)), withFamilies(ipv6, ipv4), sticky(60),
		withPolicy("Local"), withDistribution("PreferClose"), withLabels("tier", "web"), withAnnotations("note", "any text"),
		withPrefer("region"))})
	h2c, local, near, seconds := "kubernetes.io/h2c", corev1.ServiceInternalTrafficPolicyLocal, "PreferClose", int32(60)
	want := merge.Result{
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP,
			Ports: []mcsv1beta1.ServicePort{
				{Name: "http", Protocol: tcp, Port: 80, AppProtocol: &h2c}, {Name: "dns", Protocol: udp, Port: 53},
			},
			IPFamilies:      []corev1.IPFamily{ipv6, ipv4},
			SessionAffinity: corev1.ServiceAffinityClientIP,
			SessionAffinityConfig: &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
			},
			InternalTrafficPolicy: &local,
			TrafficDistribution:   &near,
		},
		Labels:      map[string]string{"tier": "web"},
		Annotations: map[string]string{"note": "any text"},
		Mode:        merge.ModeClusterSetIP,
		Prefer:      "region",
		Clusters:    []string{"a"},
	}
	if diff := cmp.Diff(want, got, exported); diff != "" {
		t.Error(diff)
	}
}

// Results outlive the records in a cache: neither may change with the other.
func TestResultSharesNothingWithRecords(t *testing.T) {
	in := records{record("a", 1, withLabels("k", "v"), withAnnotations("k", "v"), withDistribution("x"), withPorts(appPort("http", 80, "h")))}
	before := in[0].DeepCopy()
	r := mergetest.Merge(in)
	r.Labels["k"], r.Annotations["k"], *r.Spec.TrafficDistribution, *r.Spec.Ports[0].AppProtocol = "w", "w", "w", "w"
	r.Spec.IPFamilies[0] = "w"
	if diff := cmp.Diff(before, &in[0]); diff != "" {
		t.Error(diff)
	}
}

func TestPrecedence(t *testing.T) {
	late := record("a", 5)
	late.ExportedAt = metav1.NewTime(mergetest.Epoch.Add(5*time.Second + 900*time.Millisecond))
	noTime := record("0", 0)
	noTime.ExportedAt = metav1.Time{}
	for name, tc := range map[string]struct {
		in   records
		want string
	}{
		"oldest first":                         {records{record("a", 3), record("b", 1), record("c", 2)}, "b c a"},
		"ties by cluster id":                   {records{record("c", 1), record("b", 1), record("a", 1)}, "a b c"},
		"fractions of a second do not count":   {records{record("b", 5), late}, "a b"},
		"an export without a time comes last":  {records{noTime, record("b", 9)}, "b 0"},
		"a cluster counts once":                {records{record("a", 3), record("b", 2), record("a", 1)}, "a b"},
		"time zones do not change the instant": {records{record("b", 1), inZone(record("a", 0))}, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(mergetest.Merge(tc.in).Clusters, " "); got != tc.want {
				t.Errorf("clusters = %s, want %s", got, tc.want)
			}
		})
	}
}

func inZone(r v1alpha1.ExportRecordSpec) v1alpha1.ExportRecordSpec {
	r.ExportedAt = metav1.NewTime(r.ExportedAt.In(time.FixedZone("far", 9*3600)))
	return r
}

func TestDuplicatesOfOneCluster(t *testing.T) {
	older := record("a", 1, withPorts(port("http", tcp, 80)))
	newer := record("a", 2, withPorts(port("http", tcp, 81)))
	same := record("a", 1, withPorts(port("http", tcp, 82)))
	if got := ports(mergetest.Merge(records{newer, older})); got != "http 80/TCP" {
		t.Errorf("ports = %s, want those of the older record", got)
	}
	one, other := mergetest.Merge(records{older, same}), mergetest.Merge(records{same, older})
	if diff := cmp.Diff(one, other, exported); diff != "" {
		t.Errorf("the choice depends on the order: %s", diff)
	}
	if len(one.Clusters) != 1 || len(one.Conflicts) != 0 {
		t.Errorf("a cluster conflicts with itself: %v, %v", one.Clusters, conflicts(one))
	}
	many := make(records, 0, 60)
	for i := range 30 {
		id := fmt.Sprintf("c%02d", i)
		many = append(many, record(id, 100-i), record(id, i))
	}
	if r := mergetest.Merge(many); len(r.Clusters) != 30 || !slices.IsSorted(r.Clusters) {
		t.Errorf("of 30 clusters with two records each take part: %v", r.Clusters)
	}
}

// mergeCase is a row of a table: records, and what to check of the result.
type mergeCase struct {
	name      string
	in        records
	conflicts []string
	check     func(r merge.Result) (got, want any)
}

func run(t *testing.T, cases []mergeCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			r := mergetest.Merge(tc.in)
			if diff := cmp.Diff(tc.conflicts, conflicts(r)); diff != "" {
				t.Errorf("conflicts (-want +got):\n%s", diff)
			}
			if tc.check != nil {
				got, want := tc.check(r)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
			}
			reversed := slices.Clone(tc.in)
			slices.Reverse(reversed)
			if diff := cmp.Diff(r, mergetest.Merge(reversed), exported); diff != "" {
				t.Errorf("depends on the order of records:\n%s", diff)
			}
		})
	}
}

type leftOut = map[string]mcsv1beta1.ServiceExportConditionReason

// Row "type" of the design: the oldest decides, the others are left out entirely.
func TestType(t *testing.T) {
	run(t, []mergeCase{
		{name: "all headless", in: records{record("a", 1, headless()), record("b", 2, headless())},
			check: func(r merge.Result) (any, any) {
				return []any{r.Spec.Type, r.Mode}, []any{mcsv1beta1.Headless, merge.ModeHeadless}
			}},
		{name: "headless wins", in: records{record("a", 1, headless()), record("b", 2)},
			conflicts: []string{"TypeConflict: b"},
			check: func(r merge.Result) (any, any) {
				return []any{r.Spec.Type, r.Clusters, r.LeftOut},
					[]any{mcsv1beta1.Headless, []string{"a"}, leftOut{"b": "TypeConflict"}}
			}},
		{name: "three ways", in: records{record("a", 1), record("b", 2, headless()), record("c", 3), record("d", 4, headless())},
			conflicts: []string{"TypeConflict: b, d"},
			check: func(r merge.Result) (any, any) {
				return []any{r.Spec.Type, r.Clusters}, []any{mcsv1beta1.ClusterSetIP, []string{"a", "c"}}
			}},
		{name: "a cluster that is left out does not count for the rest",
			in: records{record("a", 1), record("b", 2, headless(), withFamilies(ipv6), sticky(5), withLabels("k", "v"),
				withPorts(port("extra", tcp, 99)), withClusterSetIP(false, false))},
			conflicts: []string{"TypeConflict: b"},
			check: func(r merge.Result) (any, any) {
				return []any{ports(r), r.CarriesPort("b", "extra", tcp)}, []any{"http 80/TCP", false}
			}},
		{name: "an unknown type is one with an IP", in: records{
			record("a", 1, func(s *v1alpha1.ExportRecordSpec) { s.Type = "New" }), record("b", 2)},
			check: func(r merge.Result) (any, any) { return r.Spec.Type, mcsv1beta1.ClusterSetIP }},
	})
}

// Row "IP families": the oldest's. A newer export takes no family from a running service.
func TestFamilies(t *testing.T) {
	families := func(want ...corev1.IPFamily) func(merge.Result) (any, any) {
		return func(r merge.Result) (any, any) { return r.Spec.IPFamilies, want }
	}
	run(t, []mergeCase{
		{name: "order is no conflict", in: records{record("a", 1, withFamilies(ipv6, ipv4)), record("b", 2, withFamilies(ipv4, ipv6))},
			check: families(ipv6, ipv4)},
		{name: "a newer one has more", in: records{record("a", 1, withFamilies(ipv4)), record("b", 2, withFamilies(ipv4, ipv6))},
			conflicts: []string{"IPFamilyConflict: b"}, check: families(ipv4)},
		{name: "a newer one has fewer", in: records{record("a", 1, withFamilies(ipv4, ipv6)), record("b", 2, withFamilies(ipv6))},
			conflicts: []string{"IPFamilyConflict: b"}, check: families(ipv4, ipv6)},
		{name: "nothing in common", in: records{record("a", 1, withFamilies(ipv4)), record("b", 2, withFamilies(ipv6))},
			conflicts: []string{"IPFamilyConflict: b"},
			check: func(r merge.Result) (any, any) {
				return []any{r.Clusters, r.LeftOut}, []any{[]string{"a"}, leftOut{"b": "IPFamilyConflict"}}
			}},
		{name: "each contributes what it shares", in: records{
			record("a", 1, withFamilies(ipv4, ipv6)), record("b", 2, withFamilies(ipv4)), record("c", 3, withFamilies(ipv6)),
			record("d", 4, withFamilies(ipv6, ipv4))},
			conflicts: []string{"IPFamilyConflict: b, c"},
			check: func(r merge.Result) (any, any) {
				return []any{r.Spec.IPFamilies, r.Clusters, r.LeftOut},
					[]any{[]corev1.IPFamily{ipv4, ipv6}, []string{"a", "b", "c", "d"}, leftOut(nil)}
			}},
		{name: "a cluster that is left out does not count for the rest", in: records{
			record("a", 1), record("b", 2, withFamilies(ipv6), withPorts(port("x", tcp, 1)), sticky(1))},
			conflicts: []string{"IPFamilyConflict: b"},
			check:     func(r merge.Result) (any, any) { return ports(r), "http 80/TCP" }},
		{name: "a record without a known family decides nothing", in: records{
			record("a", 1, withFamilies()), record("b", 2, withFamilies(ipv6)), record("c", 3, withFamilies("IPv9"))},
			check: func(r merge.Result) (any, any) {
				return []any{r.Spec.IPFamilies, len(r.Clusters)}, []any{[]corev1.IPFamily{ipv6}, 3}
			}},
		{name: "named twice counts once", in: records{record("a", 1, withFamilies(ipv4, ipv4, ipv6))}, check: families(ipv4, ipv6)},
	})
}
