package aggregate

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

func with(r *v1alpha1.ExportRecord, change func(*v1alpha1.ExportRecordSpec)) *v1alpha1.ExportRecord {
	change(&r.Spec)
	return r
}

func dual(r *v1alpha1.ExportRecordSpec) {
	r.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
}

func TestTheFirstExporterAllocates(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("old", 2), record("new", 1)}
	plan := decide(Input{ClusterID: "old", Service: web, Records: records})
	if !plan.Allocated || plan.Delay != 0 || !slices.Equal(plan.Want.Spec.IPs, []string{"243.0.0.1"}) ||
		plan.Want.Annotations[v1alpha1.AnnotationAllocatedBy] != "old" {
		t.Errorf("the oldest: %+v, ips %v, %v", plan, plan.Want.Spec.IPs, plan.Want.Annotations)
	}
	if plan := decide(Input{ClusterID: "new", Service: web, Records: records}); plan.Delay == 0 {
		t.Error("the next exporter does not wait for the oldest")
	}
	existing := plan.Want
	for _, id := range []string{"old", "new"} {
		if plan := decide(Input{ClusterID: id, Service: web, Records: records, Existing: existing}); plan.Allocated || plan.Spec {
			t.Errorf("%s allocates a second clusterset IP: %+v", id, plan)
		}
	}
	// The cluster that allocated it stops exporting: the clusterset IP stays.
	plan = decide(Input{ClusterID: "new", Service: web, Records: records[1:], Existing: existing})
	if !slices.Equal(plan.Want.Spec.IPs, []string{"243.0.0.1"}) || plan.Want.Annotations[v1alpha1.AnnotationAllocatedBy] != "old" {
		t.Errorf("after the allocator left: %v %v", plan.Want.Spec.IPs, plan.Want.Annotations)
	}
	if plan := decide(Input{ClusterID: "third", Service: web, Records: records}); plan.Allocated {
		t.Error("a cluster that does not export the service allocates")
	}
}

func TestClusterSetIPsByModeAndFamily(t *testing.T) {
	classic := func(r *v1alpha1.ExportRecordSpec) { r.UseClusterSetIP = false }
	headless := func(r *v1alpha1.ExportRecordSpec) { r.Type = mcsv1beta1.Headless }
	for name, change := range map[string]func(*v1alpha1.ExportRecordSpec){"classic": classic, "headless": headless} {
		if plan := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{with(record("a", 1), change)}}); plan.Allocated {
			t.Errorf("%s: %v", name, plan.Want.Spec.IPs)
		}
	}
	plan := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{with(record("a", 1), dual)}})
	if !slices.Equal(plan.Want.Spec.IPs, []string{"fd00:243::1", "243.0.0.1"}) {
		t.Errorf("dual stack: %v", plan.Want.Spec.IPs)
	}
	// A service that becomes headless keeps its clusterset IPs for when it is headless no longer.
	kept := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{with(record("a", 1), headless)}, Existing: plan.Want})
	if !slices.Equal(kept.Want.Spec.IPs, plan.Want.Spec.IPs) {
		t.Errorf("became headless: %v", kept.Want.Spec.IPs)
	}
	// A service that gets a second family keeps its clusterset IP and gets one more.
	single := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{record("a", 1)}}).Want
	grown := decide(Input{ClusterID: "a", Service: web, Records: []*v1alpha1.ExportRecord{with(record("a", 1), dual)}, Existing: single})
	if !grown.Spec || !slices.Equal(grown.Want.Spec.IPs, []string{"243.0.0.1", "fd00:243::1"}) {
		t.Errorf("became dual stack: %v", grown.Want.Spec.IPs)
	}
}

func TestNoClusterSetIPLeft(t *testing.T) {
	empty := errors.New("all in use")
	none := func(corev1.IPFamily, netip.Addr) (netip.Addr, error) { return netip.Addr{}, empty }
	only4 := func(f corev1.IPFamily, _ netip.Addr) (netip.Addr, error) {
		if f == corev1.IPv6Protocol {
			return netip.Addr{}, empty
		}
		return netip.MustParseAddr("243.0.0.1"), nil
	}
	records := []*v1alpha1.ExportRecord{record("old", 2), record("new", 1)}
	plan := Decide(Input{ClusterID: "old", Service: web, Records: records, Offer: none})
	if !errors.Is(plan.Shortage, empty) || plan.Allocated || !plan.Spec {
		t.Errorf("want an aggregate without clusterset IP, and the reason: %+v", plan)
	}
	existing := plan.Want
	if plan := Decide(Input{ClusterID: "new", Service: web, Records: records, Offer: none}); plan.Shortage != nil {
		t.Error("an exporter without precedence reports a shortage before the first exporter could allocate")
	}
	if plan := decide(Input{ClusterID: "new", Service: web, Records: records, Existing: existing}); !plan.Allocated || plan.Delay == 0 {
		t.Errorf("another exporter with free clusterset IPs must allocate one after a delay: %+v", plan)
	}
	both := []*v1alpha1.ExportRecord{with(record("a", 1), dual)}
	if plan := Decide(Input{ClusterID: "a", Service: web, Records: both, Offer: only4}); plan.Shortage != nil || !plan.Allocated {
		t.Errorf("one family is enough: %+v", plan)
	}
}

func TestALostAggregateGetsItsClusterSetIPBack(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("old", 2), record("new", 1)}
	former := Addresses{IPs: []netip.Addr{netip.MustParseAddr("243.7.0.7")}, AllocatedBy: "old"}
	plan := decide(Input{ClusterID: "old", Service: web, Records: records, Remembered: former})
	if !slices.Equal(plan.Want.Spec.IPs, []string{"243.7.0.7"}) {
		t.Errorf("allocated by this cluster: %v", plan.Want.Spec.IPs)
	}
	edited := plan.Want.DeepCopy()
	edited.Annotations = nil
	repaired := decide(Input{ClusterID: "old", Service: web, Records: records, Existing: edited, Remembered: former})
	if !repaired.Spec || repaired.Want.Annotations[v1alpha1.AnnotationAllocatedBy] != "old" {
		t.Errorf("after the annotations were removed: %v", repaired.Want.Annotations)
	}
	former.AllocatedBy = "new"
	plan = decide(Input{ClusterID: "old", Service: web, Records: records, Remembered: former})
	if plan.Allocated || plan.Shortage != nil || plan.Waits != objects.WaitForOther {
		t.Errorf("the cluster that allocated it is live, so no other allocates: %+v", plan)
	}
	stale := map[string]bool{"new": true}
	if plan := decide(Input{ClusterID: "old", Service: web, Records: records, Remembered: former, Stale: stale}); !plan.Allocated {
		t.Error("the cluster that allocated it is stale, so another must allocate")
	}
}
