package aggregate

import (
	"net/netip"
	"slices"
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

// decide decides for a member whose block begins at 243.0.0.1 unless the input has another idea.
func decide(in Input) Plan {
	if in.Offer == nil {
		in.Offer = func(family corev1.IPFamily, wanted netip.Addr) (netip.Addr, error) {
			if wanted.IsValid() {
				return wanted, nil
			}
			if family == corev1.IPv6Protocol {
				return netip.MustParseAddr("fd00:243::1"), nil
			}
			return netip.MustParseAddr("243.0.0.1"), nil
		}
	}
	return Decide(in)
}

// written is the aggregate these records lead to, as it would be read back when all exporters have seen to it.
func written(records ...*v1alpha1.ExportRecord) *mcsv1beta1.ServiceImport {
	var si *mcsv1beta1.ServiceImport
	for _, r := range records {
		si = decide(Input{ClusterID: string(r.Spec.ClusterID), Service: web, Records: records, Existing: si}).Want
	}
	return si
}

func TestWhoWritesTheAggregate(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("old", 2), record("new", 1)}
	unlisted := written(records...)
	unlisted.Status.Clusters = listed([]string{"old"}, "old", true)
	gone := written(records...)
	gone.Status.Clusters = listed([]string{"new", "old"}, "other", true)
	for name, test := range map[string]struct {
		me           string
		stale        map[string]bool
		existing     *mcsv1beta1.ServiceImport
		spec, status bool
		waits        bool
	}{
		"the oldest at once":                    {me: "old", spec: true, status: true},
		"the next one waits for it":             {me: "new", spec: true, status: true, waits: true},
		"the next one at once when it is stale": {me: "new", stale: map[string]bool{"old": true}, spec: true, status: true},
		"an importer never":                     {me: "other"},
		"nobody when it is right":               {me: "old", existing: written(records...)},
		"each lists itself, at once":            {me: "new", existing: unlisted, status: true},
		"nobody lists another":                  {me: "old", existing: unlisted},
		"who left takes itself off the list":    {me: "other", existing: gone, status: true},
		"nobody takes another off the list":     {me: "new", existing: gone},
	} {
		t.Run(name, func(t *testing.T) {
			plan := decide(Input{ClusterID: test.me, Service: web, Records: records, Stale: test.stale, Existing: test.existing})
			if plan.Spec != test.spec || plan.Status != test.status || plan.Delete || (plan.Wait > 0) != test.waits {
				t.Errorf("plan: %+v", plan)
			}
		})
	}
}

func TestNewerMergeRulesAreNotOverruled(t *testing.T) {
	existing := written(record("a", 1))
	existing.Spec.Ports = nil
	existing.Annotations[v1alpha1.AnnotationMergeVersion] = "999"
	if plan := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{record("a", 1)}, Existing: existing}); !plan.Nothing() {
		t.Errorf("plan: %+v", plan)
	}
	existing.Annotations[v1alpha1.AnnotationMergeVersion] = "0"
	if plan := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{record("a", 1)}, Existing: existing}); !plan.Spec {
		t.Error("an older version's aggregate was left as it is")
	}
}

func TestAddressesOutliveWhoAllocatedThem(t *testing.T) {
	existing := written(record("a", 2), record("b", 1))
	existing.Spec.IPs = []string{"243.0.0.7"}
	existing.Annotations[v1alpha1.AnnotationAllocatedBy] = "a"
	plan := decide(Input{ClusterID: "b", Service: web, Records: []*v1alpha1.ExportRecord{record("b", 1)}, Existing: existing})
	if plan.Want == nil || !slices.Equal(plan.Want.Spec.IPs, []string{"243.0.0.7"}) || plan.Want.Annotations[v1alpha1.AnnotationAllocatedBy] != "a" {
		t.Errorf("plan: %+v", plan.Want)
	}
}

func TestWhoRemovesTheAggregate(t *testing.T) {
	one, two := written(record("a", 1)), written(record("a", 2), record("b", 1))
	begun := written(record("a", 1))
	begun.Status.Clusters = nil
	for name, test := range map[string]struct {
		me                string
		existing          *mcsv1beta1.ServiceImport
		deleted, delisted bool
		wait              time.Duration // at least
	}{
		"there is none":                       {"a", nil, false, false, 0},
		"the last exporter at once":           {"a", one, true, false, 0},
		"nobody else":                         {"b", one, false, false, 0},
		"one of two takes itself off":         {"b", two, false, true, 0},
		"a bystander of two does nothing":     {"c", two, false, false, 0},
		"one that lists nobody, its writer":   {"a", begun, true, false, 0},
		"one that lists nobody, others later": {"b", begun, true, false, sweep},
	} {
		t.Run(name, func(t *testing.T) {
			plan := decide(Input{ClusterID: test.me, Service: web, Existing: test.existing})
			if plan.Spec || plan.Delete != test.deleted || plan.Status != test.delisted || plan.Wait < test.wait || (test.wait == 0 && plan.Wait != 0) {
				t.Errorf("plan: %+v", plan)
			}
		})
	}
	left := decide(Input{ClusterID: "b", Service: web, Existing: two}).Want
	if plan := decide(Input{ClusterID: "a", Service: web, Existing: left}); !plan.Delete {
		t.Errorf("the last of two does not delete it: %+v", plan)
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
