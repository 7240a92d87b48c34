package dataplane_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// A service whose two families were allocated by two clusters gets both back after the broker lost
// its aggregate and its records.
func TestFamiliesOfTwoClustersComeBack(t *testing.T) {
	cps := startWithRanges(t, "10.97.0.0/16,fd00:97::/112", "10.98.0.0/16,fd00:98::/112")
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{
		IDs: []string{"four", "six"}, DataPlanes: map[string]v1alpha1.DataPlane{"six": v1alpha1.DataPlaneNone},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"four", "six"} { // each keeps its block of one family
		cluster := &v1alpha1.Cluster{}
		if err := f.Admin.Get(context.Background(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: id}, cluster); err != nil {
			t.Fatal(err)
		}
		cluster.Spec.ClusterSetIPBlocks = cluster.Spec.ClusterSetIPBlocks[i : i+1]
		if err := f.Admin.Update(context.Background(), cluster); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	ns := fleet.NewNamespace(t, f.Members...)
	for _, m := range f.Members {
		m.Create(t, fleet.NewService(ns, "web", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) }))
		m.Export(t, ns, "web")
	}
	before := waitReachable(t, f.Members[1], ns, "web", 2)
	waitAllocated(t, f, ns, "web", 2)
	harness.Eventually(t, "four remembers both", func() error {
		si, err := f.Members[0].Import(ns, "web")
		if err != nil || len(si.Spec.IPs) != 2 {
			return fmt.Errorf("%v: %w", si.Spec.IPs, err)
		}
		return nil
	})
	f.Stop() // so that no agent is faster than the deletion
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	for _, obj := range []client.Object{
		&mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Name: objects.AggregateName(service)}},
		&v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Name: objects.RecordName(service, "four")}},
		&v1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Name: objects.RecordName(service, "six")}},
	} {
		obj.SetNamespace(objects.DefaultNamespace)
		if err := f.Admin.Delete(context.Background(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	if now := waitAllocated(t, f, ns, "web", 2); !slices.Equal(now.Spec.IPs, before.Spec.IPs) {
		t.Errorf("the clusterset IPs were %v and are %v", before.Spec.IPs, now.Spec.IPs)
	}
	if now := waitReachable(t, f.Members[1], ns, "web", 2); !slices.Equal(now.Spec.IPs, before.Spec.IPs) {
		t.Errorf("six had %v and has %v", before.Spec.IPs, now.Spec.IPs)
	}
}

// Two services claim one clusterset IP. The loser gets it when the claim with precedence goes.
func TestLoserOfAClaimGetsTheClusterSetIPLater(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, north)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	ip := waitReachable(t, north, ns, "web", 1).Spec.IPs[0]

	west.Stop() // its agent would withdraw the record
	late := types.NamespacedName{Namespace: ns, Name: "late"}
	record := &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: objects.DefaultNamespace, Name: objects.RecordName(late, "west"), Labels: objects.Labels(late, "west"),
		},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: late.Name, ServiceNamespace: ns, ClusterID: "west", ExportedAt: metav1.Now().Rfc3339Copy(), Type: mcsv1beta1.ClusterSetIP,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true, MergeVersion: 1,
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, ClusterSetIPs: []string{ip},
		},
	}
	if err := shared.Admin.Create(context.Background(), record); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := west.Start(); err != nil {
			t.Error(err)
		}
		waitGone(t, "the record", func() (client.Object, error) {
			return record, shared.Admin.Get(context.Background(), client.ObjectKeyFromObject(record), record)
		})
	})
	harness.Eventually(t, "the loser says why it has no clusterset IP", func() error {
		si, err := north.Import(ns, "late")
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if c == nil || c.Reason != string(v1alpha1.ServiceImportReasonClusterSetIPRejected) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if si := waitReachable(t, north, ns, "web", 1); si.Spec.IPs[0] != ip {
		t.Errorf("the winner had %s and has %v", ip, si.Spec.IPs)
	}
	east.Unexport(t, ns, "web")
	if si := waitReachable(t, north, ns, "late", 1); si.Spec.IPs[0] != ip {
		t.Errorf("the loser has %v, want %s", si.Spec.IPs, ip)
	}
}

// The mode of a running service stays when its oldest exporter leaves, and when it returns.
func TestModeStaysWhenTheOldestExporterLeaves(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web", func(e *mcsv1beta1.ServiceExport) {
		e.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}
	})
	waitReachable(t, north, ns, "web", 0)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	west.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, v1alpha1.ServiceExportReasonClusterSetIPConflict)
	east.Unexport(t, ns, "web")
	harness.Eventually(t, "only west serves it", func() error {
		si, err := north.Import(ns, "web")
		if err != nil || len(si.Status.Clusters) != 1 || si.Status.Clusters[0].Cluster != "west" {
			return fmt.Errorf("clusters %v: %w", si.Status.Clusters, err)
		}
		if si.Annotations[v1alpha1.AnnotationMode] != v1alpha1.ModeClassic {
			t.Fatalf("the mode changed: %v", si.Annotations)
		}
		return nil
	})
	east.Export(t, ns, "web") // requests a clusterset IP now; what runs stays
	east.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, v1alpha1.ServiceExportReasonClusterSetIPConflict)
	if si, err := north.Import(ns, "web"); err != nil || si.Annotations[v1alpha1.AnnotationMode] != v1alpha1.ModeClassic {
		t.Errorf("the mode changed: %v %v", si.Annotations, err)
	}
	for _, m := range []*fleet.Member{east, west} {
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
		if err := m.Client.Delete(context.Background(), export); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}
