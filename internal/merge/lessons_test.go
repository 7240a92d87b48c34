package merge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

// Each test covers a defect that users of another system reported.

// Lesson: a type conflict stayed after the winning cluster unexported; the loser was not
// re-evaluated.
func TestLoserOfTypeConflictIsReevaluated(t *testing.T) {
	winner, loser := record("a", 1, headless()), record("b", 2, withPorts(port("https", tcp, 443)))
	if r := mergetest.Merge(records{winner, loser}); r.Spec.Type != mcsv1beta1.Headless || r.LeftOut["b"] == "" {
		t.Fatalf("type %s, left out %v", r.Spec.Type, r.LeftOut)
	}
	r := mergetest.Merge(records{loser})
	if r.Spec.Type != mcsv1beta1.ClusterSetIP || len(r.LeftOut) != 0 || ports(r) != "https 443/TCP" {
		t.Errorf("after the winner left: type %s, left out %v, ports %s", r.Spec.Type, r.LeftOut, ports(r))
	}
	if status, reason, _ := r.Condition(); status != metav1.ConditionFalse || reason != "NoConflicts" {
		t.Errorf("after the winner left: condition %s/%s", status, reason)
	}
}

// The same for every other property: the next oldest decides, and conflicts that are over are gone.
func TestWinnerLeaves(t *testing.T) {
	a := record("a", 1, sticky(60), withFamilies(ipv4), withLabels("k", "a"), withAnnotations("k", "a"), withPolicy("Local"),
		withDistribution("PreferClose"), withPorts(port("http", tcp, 80)), withClusterSetIP(false, false), withPrefer("cluster"))
	b := record("b", 2, withFamilies(ipv6, ipv4), withPorts(port("http", tcp, 8080)), withPrefer("region"))
	c := record("c", 3, withFamilies(ipv4, ipv6), withPorts(port("http", tcp, 8080)))
	if r := mergetest.Merge(records{a, b, c}); len(r.Conflicts) != 8 {
		t.Fatalf("conflicts: %v", conflicts(r))
	}
	got := mergetest.Merge(records{b, c})
	alone := mergetest.Merge(records{b})
	if got.Conflicts != nil {
		t.Errorf("conflicts that are over: %v", conflicts(got))
	}
	got.Clusters = alone.Clusters
	if diff := cmp.Diff(alone, got, exported); diff != "" {
		t.Errorf("the next oldest does not decide:\n%s", diff)
	}
}

// Lesson: ports in another order counted as a conflict.
func TestOrderOfPortsIsNoConflict(t *testing.T) {
	http, dns, grpc := port("http", tcp, 80), port("dns", udp, 53), port("grpc", tcp, 9000)
	r := mergetest.Merge(records{record("a", 1, withPorts(http, dns, grpc)), record("b", 2, withPorts(grpc, http, dns))})
	if r.Conflicts != nil {
		t.Errorf("conflicts: %v", conflicts(r))
	}
	if want := "http 80/TCP, dns 53/UDP, grpc 9000/TCP"; ports(r) != want {
		t.Errorf("ports = %s, want them in the oldest's order: %s", ports(r), want)
	}
}

// Lesson: only the first of several conflicts was reported, and the message counted the clusters
// that disagree instead of naming them.
func TestEveryConflictAndEveryClusterIsNamed(t *testing.T) {
	odd := func(cluster string, after int) records {
		return records{record(cluster, after, sticky(60), withFamilies(ipv4, ipv6), withLabels("k", "v"),
			withAnnotations("k", "v"), withPolicy("Local"), withDistribution("PreferClose"),
			withPorts(port("http", tcp, 8080)), withClusterSetIP(false, false))}
	}
	in := slices.Concat(records{record("paris", 1), record("flat", 9, headless()), record("late", 10, sticky(9))},
		odd("oslo", 2), odd("rome", 3))
	status, reason, message := mergetest.Merge(in).Condition()
	want := "TypeConflict,PortConflict,SessionAffinityConflict,InternalTrafficPolicyConflict,TrafficDistributionConflict," +
		"LabelsConflict,AnnotationsConflict,IPFamilyConflict,ClusterSetIPConflict"
	if status != metav1.ConditionTrue || reason != want {
		t.Errorf("condition %s, reason %s", status, reason)
	}
	for _, sentence := range strings.Split(strings.TrimSuffix(message, "."), ". ") {
		who := []string{"paris", "oslo and rome"}
		switch {
		case strings.HasPrefix(sentence, "type"):
			who = []string{"paris", "flat"}
		case strings.HasPrefix(sentence, "session affinity"):
			who = []string{"paris", "oslo, rome and late"}
		}
		for _, w := range who {
			if !strings.Contains(sentence, w) {
				t.Errorf("%q does not name %s", sentence, w)
			}
		}
	}
}

// Lesson: a newer cluster's port with the same name and another number still got traffic, because
// slices match ports by name.
func TestPortThatLostGetsNoTrafficByName(t *testing.T) {
	r := mergetest.Merge(records{
		record("a", 1, withPorts(port("http", tcp, 80), port("dns", udp, 53))),
		record("b", 2, withPorts(port("http", tcp, 8080), port("dns", udp, 53))),
	})
	if ports(r) != "http 80/TCP, dns 53/UDP" {
		t.Errorf("ports = %s", ports(r))
	}
	if !r.CarriesPort("a", "http", tcp) || r.CarriesPort("b", "http", tcp) || !r.CarriesPort("b", "dns", udp) {
		t.Error("b must carry dns and not http, a both")
	}
}

// Lesson: an unnamed port merged with a named one gave a Service that the API server rejects.
// test/integration/merge tests the same with a real API server.
func TestUnnamedPortNeverBesideAnother(t *testing.T) {
	unnamed, named := withPorts(port("", tcp, 80)), withPorts(port("https", tcp, 443))
	for _, in := range []records{
		{record("a", 1, unnamed), record("b", 2, named)},
		{record("a", 1, named), record("b", 2, unnamed)},
	} {
		r := mergetest.Merge(in)
		if len(r.Spec.Ports) != 1 || r.Spec.Ports[0].Name != in[0].Ports[0].Name {
			t.Errorf("ports = %s, want the oldest's alone", ports(r))
		}
		if got := conflicts(r); !slices.Equal(got, []string{"PortConflict: b"}) {
			t.Errorf("conflicts = %v", got)
		}
	}
}

// Lesson: a local export without a Service stopped that cluster from importing the service from the
// others. Here such an export has no record, so it does not take part.
func TestClusterWithoutRecordDoesNotMatter(t *testing.T) {
	r := mergetest.Merge(records{record("b", 2), record("c", 3)})
	if !slices.Equal(r.Clusters, []string{"b", "c"}) || r.Conflicts != nil || r.CarriesPort("a", "http", tcp) {
		t.Errorf("clusters %v, conflicts %v", r.Clusters, conflicts(r))
	}
}

// Lesson: an unknown value in one field (a newer trafficDistribution) dropped the whole export.
func TestUnknownValuesPass(t *testing.T) {
	r := mergetest.Merge(records{record("a", 1, withDistribution("PreferUnknown"), withAffinity("Cookie"), withPolicy("Rack")),
		record("b", 2, withDistribution("PreferUnknown"), withAffinity("Cookie"), withPolicy("Rack"))})
	if len(r.Clusters) != 2 || r.Conflicts != nil || ports(r) != "http 80/TCP" {
		t.Fatalf("clusters %v, conflicts %v, ports %s", r.Clusters, conflicts(r), ports(r))
	}
	if *r.Spec.TrafficDistribution != "PreferUnknown" || r.Spec.SessionAffinity != "Cookie" ||
		*r.Spec.InternalTrafficPolicy != "Rack" {
		t.Errorf("spec = %+v", r.Spec)
	}
}

// Lesson: session affinity reached the ServiceImport but not the data plane. The result has all of
// it, with defaults set, so that no reader needs to know them.
func TestAffinityIsComplete(t *testing.T) {
	r := mergetest.Merge(records{record("a", 1, withAffinity("ClientIP"))})
	if got, want := timeoutIs(10800)(r); got != want {
		t.Errorf("timeout = %v, want %v", got, want)
	}
}

// Lesson: a change between headless and ClusterIP deleted and recreated the Service. If a newer
// cluster changes, nothing changes for the others.
func TestTypeChangeOfNewerClusterChangesNothingForTheOthers(t *testing.T) {
	before := mergetest.Merge(records{record("a", 1), record("b", 2)})
	changed := mergetest.Merge(records{record("a", 1), record("b", 2, headless())})
	if diff := cmp.Diff(before.Spec, changed.Spec); diff != "" {
		t.Error(diff)
	}
	if after := mergetest.Merge(records{record("a", 1), record("b", 2)}); cmp.Diff(before, after, exported) != "" {
		t.Error("after changing back, the result differs from the first")
	}
}
