package aggregate

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func record(cluster string, age int) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: objects.RecordName(web, cluster), Labels: objects.Labels(web, cluster)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: web.Name, ServiceNamespace: web.Namespace, ClusterID: v1alpha1.ClusterID(cluster),
			ExportedAt: metav1.NewTime(time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour)),
			Type:       mcsv1beta1.ClusterSetIP,
			Ports:      []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true,
		},
	}
}

// decide calls Decide in a clusterset whose clusterset IPs begin with 243 or fd00:243. Those of
// 243.0.0.0/16 are from the block of old.
func decide(in Input) Plan {
	in.Accepts = func(addr netip.Addr) bool { return addr.Is6() || addr.As4()[0] == 243 }
	in.BlockOwner = func(addr netip.Addr) string {
		if netip.MustParsePrefix("243.0.0.0/16").Contains(addr) {
			return "old"
		}
		return ""
	}
	return Decide(in)
}

// written returns the aggregate of these records after every exporter has written its part.
func written(records ...*v1alpha1.ExportRecord) *mcsv1beta1.ServiceImport {
	var si *mcsv1beta1.ServiceImport
	for _, r := range records {
		si = decide(Input{ClusterID: string(r.Spec.ClusterID), Service: web, Records: records, Existing: si}).Want
	}
	return si
}

func TestWhichMemberWritesTheAggregate(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("old", 2), record("new", 1)}
	unlisted := written(records...)
	unlisted.Status.Clusters = clusterList([]string{"old"}, "old", true)
	listsFormer := written(records...)
	listsFormer.Status.Clusters = clusterList([]string{"new", "old"}, "other", true)
	for name, test := range map[string]struct {
		member       string
		stale        map[string]bool
		existing     *mcsv1beta1.ServiceImport
		spec, status bool
		waits        objects.WaitReason
	}{
		"the oldest exporter writes at once":              {member: "old", spec: true, status: true},
		"the next exporter waits for it":                  {member: "new", spec: true, status: true, waits: objects.WaitForOther},
		"the next exporter writes at once if it is stale": {member: "new", stale: map[string]bool{"old": true}, spec: true, status: true},
		"an importer never writes":                        {member: "other"},
		"an aggregate that is right is left alone":        {member: "old", existing: written(records...)},
		"each exporter lists itself, at once":             {member: "new", existing: unlisted, status: true},
		"no exporter lists another":                       {member: "old", existing: unlisted},
		"a former exporter removes itself from the list":  {member: "other", existing: listsFormer, status: true},
		"no exporter removes another from the list":       {member: "new", existing: listsFormer},
	} {
		t.Run(name, func(t *testing.T) {
			plan := decide(Input{ClusterID: test.member, Service: web, Records: records, Stale: test.stale, Existing: test.existing})
			if plan.Spec != test.spec || plan.Status != test.status || plan.Delete ||
				(plan.Delay > 0) != (test.waits != "") || plan.Waits != test.waits {
				t.Errorf("plan: %+v", plan)
			}
		})
	}
}

// Members may disagree for a moment about who has precedence, or see different records. They do not
// overwrite each other at once.
func TestAggregateOfAnotherLivingExporterIsLeftForAWhile(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("old", 2), record("new", 1)}
	existing := written(records...)
	existing.Spec.Ports = nil
	for name, test := range map[string]struct {
		writer string
		stale  map[string]bool
		waits  objects.WaitReason
	}{
		"it wrote it":           {writer: "old"},
		"a living exporter did": {writer: "new", waits: objects.WaitForOther},
		"a stale exporter did":  {writer: "new", stale: map[string]bool{"new": true}},
		"a member did whose record was deleted or is not seen yet": {writer: "other", waits: objects.WaitForOther},
		"the writer is not labeled":                                {},
	} {
		t.Run(name, func(t *testing.T) {
			existing := existing.DeepCopy()
			existing.Labels[v1alpha1.LabelWrittenBy] = test.writer
			plan := decide(Input{ClusterID: "old", Service: web, Records: records, Stale: test.stale, Existing: existing})
			if !plan.Spec || (plan.Delay > 0) != (test.waits != "") || plan.Waits != test.waits {
				t.Errorf("plan: %+v", plan)
			}
		})
	}
}

func TestAnAggregateBeingDeletedIsLeftAlone(t *testing.T) {
	existing := written(record("a", 1))
	existing.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	plan := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{record("a", 1)}, Existing: existing})
	if !plan.Empty() || plan.Waits != objects.WaitForDeletion {
		t.Errorf("plan: %+v", plan)
	}
}

func TestAggregatesOfNewerMergeRulesAreLeftAlone(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("a", 1)}
	existing := written(record("a", 1))
	existing.Spec.Ports = nil
	existing.Annotations[v1alpha1.AnnotationMergeVersion] = "999"
	if plan := decide(Input{ClusterID: "a", Service: web, Records: records, Existing: existing}); !plan.Spec {
		t.Error("a version that no exporter has keeps the aggregate from being updated")
	}
	newer := record("b", 0)
	newer.Spec.MergeVersion = 999
	listed := existing.DeepCopy()
	listed.Status.Clusters = clusterList([]string{"a"}, "b", true)
	if plan := decide(Input{ClusterID: "a", Service: web, Records: append(records, newer), Existing: listed}); !plan.Empty() {
		t.Errorf("plan: %+v", plan)
	}
	existing.Annotations[v1alpha1.AnnotationMergeVersion] = "0"
	if plan := decide(Input{ClusterID: "a", Service: web, Records: records, Existing: existing}); !plan.Spec {
		t.Error("an older version's aggregate was left as it is")
	}
}

func TestWhichMemberRemovesTheAggregate(t *testing.T) {
	one, two := written(record("a", 1)), written(record("a", 2), record("b", 1))
	empty := written(record("a", 1))
	empty.Status.Clusters = nil
	for name, test := range map[string]struct {
		member            string
		existing          *mcsv1beta1.ServiceImport
		deleted, delisted bool
		delay             time.Duration // at least
		waits             objects.WaitReason
	}{
		"there is none":                             {"a", nil, false, false, 0, ""},
		"the last exporter deletes it at once":      {"a", one, true, false, 0, ""},
		"another member does not":                   {"b", one, false, false, 0, objects.WaitForOther},
		"one of two exporters removes itself":       {"b", two, false, true, 0, ""},
		"another member leaves that to them":        {"c", two, false, false, 0, objects.WaitForOther},
		"with an empty list its writer deletes it":  {"a", empty, true, false, 0, ""},
		"with an empty list others delete it later": {"b", empty, true, false, cleanupDelay, objects.WaitForOther},
	} {
		t.Run(name, func(t *testing.T) {
			plan := decide(Input{ClusterID: test.member, Service: web, Existing: test.existing})
			if plan.Spec || plan.Delete != test.deleted || plan.Status != test.delisted || plan.Waits != test.waits ||
				plan.Delay < test.delay || (test.delay == 0 && plan.Delay != 0) {
				t.Errorf("plan: %+v", plan)
			}
		})
	}
	left := decide(Input{ClusterID: "b", Service: web, Existing: two}).Want
	if plan := decide(Input{ClusterID: "a", Service: web, Existing: left}); !plan.Delete {
		t.Errorf("the last of two does not delete it: %+v", plan)
	}
}
