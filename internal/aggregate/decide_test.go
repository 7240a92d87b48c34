package aggregate

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/broker"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func record(cluster string, age int) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: broker.RecordName(web, cluster), Labels: broker.Labels(web, cluster)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: web.Name, ServiceNamespace: web.Namespace, ClusterID: v1alpha1.ClusterID(cluster),
			ExportedAt: metav1.NewTime(time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour)),
			Type:       mcsv1beta1.ClusterSetIP,
			Ports:      []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true,
		},
	}
}

// written is the aggregate these records lead to, as it would be read back.
func written(records ...*v1alpha1.ExportRecord) *mcsv1beta1.ServiceImport {
	return Decide(Input{ClusterID: string(records[0].Spec.ClusterID), Service: web, Records: records}).Want
}

func TestWhoWritesTheAggregate(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("old", 2), record("new", 1)}
	for name, test := range map[string]struct {
		me       string
		stale    map[string]bool
		existing *mcsv1beta1.ServiceImport
		nothing  bool
		waits    bool
	}{
		"the oldest at once":                    {me: "old"},
		"the next one waits for it":             {me: "new", waits: true},
		"the next one at once when it is stale": {me: "new", stale: map[string]bool{"old": true}},
		"an importer never":                     {me: "other", nothing: true},
		"nobody when it is right":               {me: "old", existing: written(records...), nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(Input{ClusterID: test.me, Service: web, Records: records, Stale: test.stale, Existing: test.existing})
			if plan.Nothing != test.nothing || (plan.Wait > 0) != test.waits {
				t.Errorf("plan: %+v", plan)
			}
			if !test.nothing && plan.Want == nil {
				t.Error("nothing to write")
			}
		})
	}
}

func TestNewerMergeRulesAreNotOverruled(t *testing.T) {
	existing := written(record("a", 1))
	existing.Spec.Ports = nil
	existing.Annotations[v1alpha1.AnnotationMergeVersion] = "999"
	if plan := Decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{record("a", 1)}, Existing: existing}); !plan.Nothing {
		t.Errorf("plan: %+v", plan)
	}
	existing.Annotations[v1alpha1.AnnotationMergeVersion] = "0"
	if plan := Decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{record("a", 1)}, Existing: existing}); plan.Nothing {
		t.Error("an older version's aggregate was left as it is")
	}
}

func TestAddressesOutliveWhoAllocatedThem(t *testing.T) {
	existing := written(record("a", 2), record("b", 1))
	existing.Spec.IPs = []string{"243.0.0.7"}
	existing.Annotations[v1alpha1.AnnotationAllocatedBy] = "a"
	plan := Decide(Input{ClusterID: "b", Service: web, Records: []*v1alpha1.ExportRecord{record("b", 1)}, Existing: existing})
	if plan.Want == nil || !slices.Equal(plan.Want.Spec.IPs, []string{"243.0.0.7"}) || plan.Want.Annotations[v1alpha1.AnnotationAllocatedBy] != "a" {
		t.Errorf("plan: %+v", plan.Want)
	}
}

func TestWhoRemovesTheAggregate(t *testing.T) {
	one, two := written(record("a", 1)), written(record("a", 2), record("b", 1))
	for name, test := range map[string]struct {
		me       string
		existing *mcsv1beta1.ServiceImport
		nothing  bool
		wait     time.Duration // at least
	}{
		"there is none":                      {"a", nil, true, 0},
		"the last exporter at once":          {"a", one, false, 0},
		"somebody else much later":           {"b", one, false, sweep},
		"one of two, unless the other does":  {"b", two, false, time.Millisecond},
		"a bystander of two, much later too": {"c", two, false, sweep},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(Input{ClusterID: test.me, Service: web, Existing: test.existing})
			if plan.Want != nil || plan.Nothing != test.nothing || plan.Wait < test.wait || (test.wait == 0 && plan.Wait != 0) {
				t.Errorf("plan: %+v", plan)
			}
		})
	}
}

func TestMembersDoNotStepInAllAtOnce(t *testing.T) {
	seen := map[time.Duration]bool{}
	for _, c := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		wait := share(c, web, stepIn)
		if wait < 0 || wait >= stepIn || wait != share(c, web, stepIn) {
			t.Errorf("share of %s: %s", c, wait)
		}
		seen[wait] = true
	}
	if len(seen) < 7 {
		t.Errorf("only %d different moments for 8 members", len(seen))
	}
}
