package merge_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"pgregory.net/rapid"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

func TestOrderOfRecordsIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := mergetest.Arbitrary().Draw(t, "records")
		want := mergetest.Merge(in)
		got := mergetest.Merge(rapid.Permutation(in).Draw(t, "shuffled"))
		if diff := cmp.Diff(want, got, exported); diff != "" {
			t.Fatalf("(-one order +another):\n%s", diff)
		}
	})
}

// The service lists its ports in the oldest's order; the order of ports has no other effect.
func TestOrderOfPortsIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := mergetest.Arbitrary().Draw(t, "records")
		shuffled := slices.Clone(in)
		for i := range shuffled {
			shuffled[i].Ports = rapid.Permutation(in[i].Ports).Draw(t, "ports")
		}
		want, got := mergetest.Merge(in), mergetest.Merge(shuffled)
		for _, r := range []*merge.Result{&want, &got} {
			slices.SortFunc(r.Spec.Ports, func(a, b mcsv1beta1.ServicePort) int { return strings.Compare(a.Name, b.Name) })
			for i := range r.Conflicts {
				if c := &r.Conflicts[i]; c.Reason == mcsv1beta1.ServiceExportReasonPortConflict {
					c.Won = "" // it lists combined ports in the order of the service
				}
			}
		}
		if diff := cmp.Diff(want, got, exported); diff != "" {
			t.Fatalf("(-one order +another):\n%s", diff)
		}
	})
}

// asRecord returns the record of a cluster that has exactly the merged service.
func asRecord(r merge.Result, cluster string, after int) v1alpha1.ExportRecordSpec {
	s := mergetest.Record(cluster, after)
	s.Type, s.IPFamilies = r.Spec.Type, r.Spec.IPFamilies
	s.SessionAffinity, s.SessionAffinityConfig = r.Spec.SessionAffinity, r.Spec.SessionAffinityConfig
	s.InternalTrafficPolicy, s.TrafficDistribution = r.Spec.InternalTrafficPolicy, r.Spec.TrafficDistribution
	s.ExportedLabels, s.ExportedAnnotations, s.Prefer = r.Labels, r.Annotations, r.Prefer
	s.UseClusterSetIP = r.Mode == merge.ModeClusterSetIP
	s.RequestedClusterSetIP = s.UseClusterSetIP
	s.Ports = nil
	for _, p := range r.Spec.Ports {
		s.Ports = append(s.Ports, v1alpha1.ServicePort(p))
	}
	return s
}

func TestIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := mergetest.Merge(mergetest.Arbitrary().Draw(t, "records"))
		if want.Empty() {
			return
		}
		second := make(records, len(want.Clusters))
		for i, id := range want.Clusters {
			second[i] = asRecord(want, id, i)
		}
		got := mergetest.Merge(second)
		if got.Conflicts != nil || got.LeftOut != nil {
			t.Fatalf("clusters that have the merged service disagree: %v", conflicts(got))
		}
		want.Conflicts, want.LeftOut = nil, nil
		if diff := cmp.Diff(want, got, exported); diff != "" {
			t.Fatalf("(-merged +merged again):\n%s", diff)
		}
	})
}

func TestNoConflictWhereAllAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := mergetest.Valid().Draw(t, "records")[0]
		one.RequestedClusterSetIP = one.UseClusterSetIP
		in := make(records, rapid.IntRange(1, 30).Draw(t, "clusters"))
		for i := range in {
			in[i] = one
			in[i].ClusterID = v1alpha1.ClusterID(fmt.Sprintf("c%02d", i))
			in[i].ExportedAt = mergetest.Record("", rapid.IntRange(0, 5).Draw(t, "age")).ExportedAt
			in[i].Ports = rapid.Permutation(one.Ports).Draw(t, "ports")
		}
		if r := mergetest.Merge(in); r.Conflicts != nil || r.LeftOut != nil || len(r.Clusters) != len(in) {
			t.Fatalf("conflicts %v, left out %v, clusters %v", conflicts(r), r.LeftOut, r.Clusters)
		}
	})
}

func TestConflictsNameExactlyTheClustersThatDisagree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := mergetest.Valid().Draw(t, "records")
		r := mergetest.Merge(in)
		if diff := cmp.Diff(disagreements(in, r), conflicts(r)); diff != "" {
			t.Fatalf("(-clusters that disagree +clusters named):\n%s", diff)
		}
	})
}

// disagreements finds the clusters that disagree in a simple way: it compares each property of each
// record, as text, with the oldest's and with the service's.
func disagreements(in records, r merge.Result) []string {
	all := slices.SortedFunc(slices.Values(in), func(a, b v1alpha1.ExportRecordSpec) int {
		if a.ExportedAt.Equal(&b.ExportedAt) {
			return strings.Compare(string(a.ClusterID), string(b.ClusterID))
		}
		return a.ExportedAt.Compare(b.ExportedAt.Time)
	})
	var typed, taking records
	for _, rec := range all {
		if rec.Type == all[0].Type {
			typed = append(typed, rec)
		}
		if _, out := r.LeftOut[string(rec.ClusterID)]; !out {
			taking = append(taking, rec)
		}
	}
	service := asRecord(r, "", 0)
	var out []string
	compare := func(reason string, members records, text func(v1alpha1.ExportRecordSpec) string) {
		var ids []string
		for _, rec := range members {
			if got := text(rec); got != text(members[0]) || got != text(service) {
				ids = append(ids, string(rec.ClusterID))
			}
		}
		if ids != nil {
			out = append(out, reason+": "+strings.Join(ids, ", "))
		}
	}
	compare("TypeConflict", all, func(s v1alpha1.ExportRecordSpec) string { return string(s.Type) })
	compare("PortConflict", taking, portText)
	compare("SessionAffinityConflict", taking, affinityText)
	var alike records
	for _, rec := range taking {
		if affinityText(rec) == affinityText(taking[0]) {
			alike = append(alike, rec)
		}
	}
	compare("SessionAffinityConfigConflict", alike, timeoutText)
	compare("InternalTrafficPolicyConflict", taking, func(s v1alpha1.ExportRecordSpec) string {
		if s.InternalTrafficPolicy == nil || *s.InternalTrafficPolicy == "" {
			return "Cluster"
		}
		return string(*s.InternalTrafficPolicy)
	})
	compare("TrafficDistributionConflict", taking, func(s v1alpha1.ExportRecordSpec) string {
		if s.TrafficDistribution == nil {
			return ""
		}
		return *s.TrafficDistribution
	})
	compare("LabelsConflict", taking, func(s v1alpha1.ExportRecordSpec) string { return mapText(s.ExportedLabels) })
	compare("AnnotationsConflict", taking, func(s v1alpha1.ExportRecordSpec) string { return mapText(s.ExportedAnnotations) })
	compare("IPFamilyConflict", typed, func(s v1alpha1.ExportRecordSpec) string {
		return fmt.Sprint(slices.Sorted(slices.Values(s.IPFamilies)))
	})
	if r.Mode != merge.ModeHeadless {
		compare("ClusterSetIPConflict", append(records{service}, taking...), func(s v1alpha1.ExportRecordSpec) string {
			return fmt.Sprint(s.RequestedClusterSetIP)
		})
	}
	return out
}

func portText(s v1alpha1.ExportRecordSpec) string {
	var texts []string
	for _, p := range s.Ports {
		app := ""
		if p.AppProtocol != nil {
			app = *p.AppProtocol
		}
		texts = append(texts, fmt.Sprint(p.Name, "/", p.Protocol, "/", p.Port, "/", app))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

func affinityText(s v1alpha1.ExportRecordSpec) string {
	if s.SessionAffinity == "" {
		return "None"
	}
	return string(s.SessionAffinity)
}

func timeoutText(s v1alpha1.ExportRecordSpec) string {
	if affinityText(s) != "ClientIP" {
		return ""
	}
	if c := s.SessionAffinityConfig; c != nil && *c.ClientIP.TimeoutSeconds <= 86400 {
		return fmt.Sprint(*c.ClientIP.TimeoutSeconds)
	}
	return "10800"
}

// mapText leaves out the one key of the generator that an export may not set.
func mapText(m map[string]string) string {
	m = maps.Clone(m)
	delete(m, "seamark.dev/owner")
	if len(m) == 0 {
		return ""
	}
	return fmt.Sprint(m)
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := mergetest.Arbitrary().Draw(t, "records")
		checkInvariants(t, in, mergetest.Merge(in))
	})
}

type failer interface {
	Errorf(format string, args ...any)
}

// ruleOrder is the order in which conflicts are listed.
var ruleOrder = []mcsv1beta1.ServiceExportConditionReason{
	"TypeConflict", "PortConflict", "SessionAffinityConflict", "SessionAffinityConfigConflict",
	"InternalTrafficPolicyConflict", "TrafficDistributionConflict", "LabelsConflict", "AnnotationsConflict",
	"IPFamilyConflict", "ClusterSetIPConflict",
}

// checkInvariants checks what holds for the result of any records.
func checkInvariants(t failer, in records, r merge.Result) {
	ids := map[string]bool{}
	for _, rec := range in {
		ids[string(rec.ClusterID)] = true
	}
	if len(r.Clusters)+len(r.LeftOut) != len(ids) || r.Empty() != (len(in) == 0) {
		t.Errorf("%d clusters export, %d take part, %d are left out", len(ids), len(r.Clusters), len(r.LeftOut))
	}
	if r.Empty() {
		return
	}
	checkPorts(t, r)
	checkConflicts(t, r)
	if r.Spec.Type != mcsv1beta1.ClusterSetIP && r.Spec.Type != mcsv1beta1.Headless {
		t.Errorf("type %q", r.Spec.Type)
	}
	if n := len(r.Spec.IPFamilies); n > 2 || n == 2 && r.Spec.IPFamilies[0] == r.Spec.IPFamilies[1] {
		t.Errorf("families %v", r.Spec.IPFamilies)
	}
	for k, v := range r.Labels {
		if content.IsLabelKey(k) != nil || content.IsLabelValue(v) != nil {
			t.Errorf("label %q=%q", k, v)
		}
	}
	for k := range r.Annotations {
		if content.IsLabelKey(strings.ToLower(k)) != nil || strings.HasPrefix(k, "seamark.dev/") {
			t.Errorf("annotation %q", k)
		}
	}
}

// checkPorts checks that a Service can have the ports, and that a cluster carries each: in classic
// mode every cluster.
func checkPorts(t failer, r merge.Result) {
	if r.Spec.Ports == nil {
		t.Errorf("ports are nil")
	}
	names, sockets := map[string]bool{}, map[string]bool{}
	for _, p := range r.Spec.Ports {
		names[p.Name] = true
		sockets[fmt.Sprint(p.Protocol, p.Port)] = true
		if p.Name == "" && len(r.Spec.Ports) > 1 || p.Name != "" && content.IsDNS1123Label(p.Name) != nil {
			t.Errorf("port name %q among %d", p.Name, len(r.Spec.Ports))
		}
		if p.Port < 1 || p.Port > 65535 || !slices.Contains([]corev1.Protocol{"TCP", "UDP", "SCTP"}, p.Protocol) {
			t.Errorf("port %d/%s", p.Port, p.Protocol)
		}
		if p.AppProtocol != nil && content.IsLabelKey(*p.AppProtocol) != nil {
			t.Errorf("application protocol %q", *p.AppProtocol)
		}
		carriers := 0
		for _, id := range r.Clusters {
			if r.CarriesPort(id, p.Name, p.Protocol) {
				carriers++
			}
		}
		if carriers == 0 || r.Mode == merge.ModeClassic && carriers != len(r.Clusters) {
			t.Errorf("%d of %d clusters carry %s in mode %s", carriers, len(r.Clusters), p.Name, r.Mode)
		}
		for id := range r.LeftOut {
			if r.CarriesPort(id, p.Name, p.Protocol) {
				t.Errorf("%s is left out and carries %s", id, p.Name)
			}
		}
	}
	if len(names) != len(r.Spec.Ports) || len(sockets) != len(r.Spec.Ports) {
		t.Errorf("names or numbers are taken twice: %s", ports(r))
	}
}

// checkConflicts checks that each conflict is listed once, in order, names known clusters once
// each, and is in the condition.
func checkConflicts(t failer, r merge.Result) {
	_, reason, message := r.Condition()
	checkCondition(t, reason, message)
	last := -1
	for _, c := range r.Conflicts {
		place := slices.Index(ruleOrder, c.Reason)
		if place <= last {
			t.Errorf("%s is out of order", c.Reason)
		}
		last = place
		if !slices.Contains(strings.Split(reason, ","), string(c.Reason)) {
			t.Errorf("%s is not in %s", c.Reason, reason)
		}
		seen := map[string]bool{}
		for _, d := range c.Disagree {
			_, out := r.LeftOut[d.Cluster]
			if seen[d.Cluster] || !out && !slices.Contains(r.Clusters, d.Cluster) || d.Value == "" {
				t.Errorf("%s: %+v", c.Reason, d)
			}
			seen[d.Cluster] = true
		}
		if len(seen) == 0 || c.Won == "" || !slices.Contains(r.Clusters, c.Winner) {
			t.Errorf("%s: winner %q, won %q, %d disagree", c.Reason, c.Winner, c.Won, len(seen))
		}
	}
	for id, reason := range r.LeftOut {
		named := slices.ContainsFunc(r.Conflicts, func(c merge.Conflict) bool {
			return c.Reason == reason && slices.ContainsFunc(c.Disagree, func(d merge.Disagreement) bool { return d.Cluster == id })
		})
		if !named {
			t.Errorf("%s is left out by a %s that does not name it", id, reason)
		}
	}
}
