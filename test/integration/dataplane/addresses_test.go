package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestAddressOfTheFirstExporterStays(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	si := waitAllocated(t, shared, ns, "web", 1)
	if addr := netip.MustParseAddr(si.Spec.IPs[0]); !eastBlock.Contains(addr) || si.Annotations[v1alpha1.AnnotationAllocatedBy] != "east" {
		t.Errorf("address %s by %s", addr, si.Annotations[v1alpha1.AnnotationAllocatedBy])
	}
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	harness.Eventually(t, "both clusters serve it", func() error {
		now, err := west.Import(ns, "web")
		if err != nil || len(now.Status.Clusters) != 2 {
			return fmt.Errorf("clusters %v: %w", now.Status.Clusters, err)
		}
		return nil
	})
	east.Unexport(t, ns, "web")
	harness.Eventually(t, "only west serves it", func() error {
		now, err := aggregateOf(shared, ns, "web")
		if err != nil || len(now.Status.Clusters) != 1 || now.Status.Clusters[0].Cluster != "west" {
			return fmt.Errorf("clusters %v: %w", now.Status.Clusters, err)
		}
		return nil
	})
	if now := waitReachable(t, north, ns, "web", 1); !slices.Equal(now.Spec.IPs, si.Spec.IPs) {
		t.Errorf("the address changed from %v to %v when its exporter left", si.Spec.IPs, now.Spec.IPs)
	}
	west.Unexport(t, ns, "web")
	waitGone(t, "aggregate", func() (client.Object, error) { return aggregateOf(shared, ns, "web") })
}

func TestLostAggregateIsRestored(t *testing.T) {
	east, west, _ := clusterset(t)
	ns := fleet.NewNamespace(t, east, west)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	before := waitAllocated(t, shared, ns, "web", 1)
	waitReachable(t, west, ns, "web", 1)
	waitReachable(t, east, ns, "web", 1)
	for range 2 { // the second time the next free address is another one
		if err := shared.Admin.Delete(context.Background(),
			&mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: before.Namespace, Name: before.Name}}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "a new aggregate with the old address", func() error {
			now, err := aggregateOf(shared, ns, "web")
			if err != nil {
				return err
			}
			if now.UID == before.UID || !slices.Equal(now.Spec.IPs, before.Spec.IPs) {
				return fmt.Errorf("ips %v, were %v", now.Spec.IPs, before.Spec.IPs)
			}
			return nil
		})
		if si, err := west.Import(ns, "web"); err != nil || !slices.Equal(si.Spec.IPs, before.Spec.IPs) {
			t.Errorf("west has %v, the service %v: %v", si.Spec.IPs, before.Spec.IPs, err)
		}
	}
}

// With two addresses and three services, the third service reports the exhaustion, and gets an
// address when another is deleted.
func TestExhaustionIsReportedAndRecovers(t *testing.T) {
	_, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, west, north)
	for _, name := range []string{"one", "two"} {
		north.Serve(t, fleet.NewService(ns, name), "10.3.0.1")
		north.Export(t, ns, name)
		waitAllocated(t, shared, ns, name, 1)
	}
	north.Serve(t, fleet.NewService(ns, "three"), "10.3.0.3")
	north.Export(t, ns, "three")
	harness.Eventually(t, "the export reports that no address is left", func() error {
		c, err := north.Condition(ns, "three", mcsv1beta1.ServiceExportConditionReady)
		if err != nil || c.Status != metav1.ConditionFalse ||
			!strings.Contains(c.Message, "all 2 addresses of this cluster's block 243.9.0.0/30 are in use") {
			return fmt.Errorf("%+v: %w", c, err)
		}
		return nil
	})
	harness.Eventually(t, "the import reports what it waits for", func() error {
		si, err := west.Import(ns, "three")
		if err != nil || len(si.Status.Conditions) == 0 || si.Status.Conditions[0].Status != metav1.ConditionFalse ||
			!strings.Contains(si.Status.Conditions[0].Message, "waiting for a clusterset IP") {
			return fmt.Errorf("%+v: %w", si.Status, err)
		}
		return nil
	})
	north.Unexport(t, ns, "one")
	waitAllocated(t, shared, ns, "three", 1)
	waitReachable(t, west, ns, "three", 1)
	harness.Eventually(t, "the export is ready", func() error {
		c, err := north.Condition(ns, "three", mcsv1beta1.ServiceExportConditionReady)
		if err != nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("%+v: %w", c, err)
		}
		return nil
	})
	// The admin adds a block: what waits for an address gets one, without a restart.
	north.Serve(t, fleet.NewService(ns, "four"), "10.3.0.4")
	north.Export(t, ns, "four")
	harness.Eventually(t, "the export reports again that no address is left", func() error {
		c, err := north.Condition(ns, "four", mcsv1beta1.ServiceExportConditionReady)
		if err != nil || c.Reason != string(v1alpha1.ServiceExportReasonNoClusterSetIPLeft) {
			return fmt.Errorf("%+v: %w", c, err)
		}
		return nil
	})
	added := netip.MustParsePrefix("243.9.0.4/30")
	if _, err := brokeradmin.AddBlock(t.Context(), shared.Admin, objects.DefaultNamespace, north.ID, []netip.Prefix{added}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resetBlocks(t, north.ID, northBlock) })
	if ips := waitAllocated(t, shared, ns, "four", 1).Spec.IPs; !added.Contains(netip.MustParseAddr(ips[0])) {
		t.Errorf("four has %v, which is not of the added block", ips)
	}
	waitReachable(t, west, ns, "four", 1)
	for _, name := range []string{"two", "three", "four"} {
		north.Unexport(t, ns, name)
		waitGone(t, name, func() (client.Object, error) { return aggregateOf(shared, ns, name) })
	}
}

// resetBlocks gives a member the one block that it had.
func resetBlocks(t *testing.T, id string, block netip.Prefix) {
	t.Helper()
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: id}}
	patch := fmt.Sprintf(`{"spec":{"clusterSetIPBlocks":[%q]}}`, block)
	if err := shared.Admin.Patch(context.Background(), cluster, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Error(err)
	}
}

// A new cluster gets the block of a removed one. It does not allocate the address of a service that
// still exists.
func TestAReusedBlockGivesNoAddressInUse(t *testing.T) {
	east, west, _ := clusterset(t)
	ns := fleet.NewNamespace(t, east, west)
	block := netip.MustParsePrefix("243.11.0.0/30")
	cps := harness.Fresh(t, 2)
	joined := func(i int, id string) *fleet.Member {
		t.Helper()
		m, err := shared.Join(context.Background(), cps[i], id, fleet.Options{Blocks: map[string][]netip.Prefix{id: {block}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Stop)
		m.Namespace(t, ns)
		return m
	}
	old := joined(0, "old")
	old.Serve(t, fleet.NewService(ns, "web"), "10.9.0.1")
	old.Export(t, ns, "web")
	first := waitAllocated(t, shared, ns, "web", 1).Spec.IPs[0]
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	harness.Eventually(t, "east takes part", func() error {
		si, err := aggregateOf(shared, ns, "web")
		if err != nil || len(si.Status.Clusters) != 2 {
			return fmt.Errorf("%v: %w", si.Status.Clusters, err)
		}
		return nil
	})
	old.Stop()
	if _, err := brokeradmin.RemoveMember(context.Background(), shared.Admin, objects.DefaultNamespace, "old"); err != nil {
		t.Fatal(err)
	}
	fresh := joined(1, "fresh")
	fresh.Serve(t, fleet.NewService(ns, "api"), "10.10.0.1")
	fresh.Export(t, ns, "api")
	second := waitAllocated(t, shared, ns, "api", 1).Spec.IPs[0]
	if second == first || !block.Contains(netip.MustParseAddr(second)) {
		t.Errorf("web has %s, api got %s", first, second)
	}
	if si, err := aggregateOf(shared, ns, "web"); err != nil || si.Spec.IPs[0] != first {
		t.Errorf("web lost its address %s: %v %v", first, si.Spec.IPs, err)
	}
}

// Services have the families of their oldest export, as far as the importing cluster has them. A
// newer export takes none away. A cluster without a common family reports it.
func TestFamilies(t *testing.T) {
	cps := startWithRanges(t, "10.96.0.0/16", "10.97.0.0/16,fd00:97::/112", "10.98.0.0/16,fd00:98::/112")
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{
		IDs: []string{"four", "both", "proxied"}, DataPlanes: map[string]v1alpha1.DataPlane{"proxied": v1alpha1.DataPlaneNFTables},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	four, both, proxied := f.Members[0], f.Members[1], f.Members[2]
	ns := fleet.NewNamespace(t, f.Members...)
	dual := func(s *corev1.Service) { s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) }
	only6 := func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }

	// Dual stack everywhere it can be.
	both.Create(t, fleet.NewService(ns, "web", dual))
	both.Export(t, ns, "web")
	vips := waitAllocated(t, f, ns, "web", 2).Spec.IPs
	if si := waitReachable(t, both, ns, "web", 2); fmt.Sprint(si.Spec.IPFamilies) != "[IPv4 IPv6]" {
		t.Errorf("families %v", si.Spec.IPFamilies)
	}
	if si := waitReachable(t, proxied, ns, "web", 2); !slices.Equal(si.Spec.IPs, vips) {
		t.Errorf("proxied has %v, the clusterset %v", si.Spec.IPs, vips)
	}
	if si := waitReachable(t, four, ns, "web", 1); fmt.Sprint(si.Spec.IPFamilies) != "[IPv4]" {
		t.Errorf("families %v", si.Spec.IPFamilies)
	}
	was := waitDerived(t, both, ns, "", func(*corev1.Service) error { return nil })

	// A newer exporter of one family takes part with that family. All exporters report a conflict,
	// and the service keeps both families with their addresses.
	four.Serve(t, fleet.NewService(ns, "web"), "10.4.0.1")
	four.Export(t, ns, "web")
	for _, m := range []*fleet.Member{four, both} {
		harness.Eventually(t, "family conflict in "+m.ID, func() error {
			c, err := m.Condition(ns, "web", mcsv1beta1.ServiceExportConditionConflict)
			if err != nil || c.Status != metav1.ConditionTrue || c.Reason != string(mcsv1beta1.ServiceExportReasonIPFamilyConflict) {
				return fmt.Errorf("%+v: %w", c, err)
			}
			return nil
		})
	}
	for _, m := range []*fleet.Member{both, proxied} {
		m.AwaitImport(t, ns, "web", map[string][]string{"four": {"10.4.0.1"}})
	}
	if now := waitDerived(t, both, ns, was.UID, func(*corev1.Service) error { return nil }); !slices.Equal(now.Spec.ClusterIPs, was.Spec.ClusterIPs) {
		t.Errorf("the derived Service has %v, had %v", now.Spec.ClusterIPs, was.Spec.ClusterIPs)
	}
	if si := waitReachable(t, proxied, ns, "web", 2); !slices.Equal(si.Spec.IPs, vips) {
		t.Errorf("proxied has %v, the clusterset had %v", si.Spec.IPs, vips)
	}

	// Nothing in common.
	both.Create(t, fleet.NewService(ns, "six", only6))
	both.Export(t, ns, "six")
	harness.Eventually(t, "an IPv4 cluster cannot use it", func() error {
		si, err := four.Import(ns, "six")
		if err != nil || len(si.Status.Conditions) == 0 ||
			si.Status.Conditions[0].Reason != string(mcsv1beta1.ServiceImportReasonIPFamilyNotSupported) {
			return fmt.Errorf("%+v: %w", si.Status, err)
		}
		return nil
	})
	waitReachable(t, both, ns, "six", 1)
	four.Create(t, fleet.NewService(ns, "six"))
	four.Export(t, ns, "six")
	harness.Eventually(t, "the newer one is left out", func() error {
		c, err := four.Condition(ns, "six", mcsv1beta1.ServiceExportConditionConflict)
		if err != nil || c.Reason != string(mcsv1beta1.ServiceExportReasonIPFamilyConflict) {
			return fmt.Errorf("%+v: %w", c, err)
		}
		return nil
	})
	four.Awaits(t, ns, "six", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse,
		mcsv1beta1.ServiceExportReasonIPFamilyConflict)
}

// A member changes its data plane by joining again.
func TestChangingTheDataPlane(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east, west)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	waitReachable(t, east, ns, "web", 1)
	vip := waitAllocated(t, f, ns, "web", 1).Spec.IPs[0]
	set := func(plane v1alpha1.DataPlane) {
		t.Helper()
		east.Stop()
		secret := &corev1.Secret{}
		if err := east.Client.Get(context.Background(),
			types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret); err != nil {
			t.Fatal(err)
		}
		membership, err := objects.MembershipFrom(secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := brokeradmin.Join(context.Background(), east.Client, membership, brokeradmin.JoinOptions{DataPlane: plane}); err != nil {
			t.Fatal(err)
		}
		if err := east.Start(); err != nil {
			t.Fatal(err)
		}
	}
	set(v1alpha1.DataPlaneNFTables)
	waitGone(t, "derived Service", func() (client.Object, error) { return derived(east, ns) })
	if si := waitReachable(t, east, ns, "web", 1); si.Spec.IPs[0] != vip {
		t.Errorf("east has %v, the clusterset %s", si.Spec.IPs, vip)
	}
	set(v1alpha1.DataPlaneService)
	svc := waitDerived(t, east, ns, "", func(*corev1.Service) error { return nil })
	harness.Eventually(t, "the Service's address", func() error {
		si, err := east.Import(ns, "web")
		if err != nil || !slices.Equal(si.Spec.IPs, svc.Spec.ClusterIPs) {
			return fmt.Errorf("ips %v: %w", si.Spec.IPs, err)
		}
		return nil
	})
}

// Classic services have no clusterset IP: slices hold the clusters' own addresses, with the weight
// of the export.
func TestClassicModeObjects(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	classic := func(e *mcsv1beta1.ServiceExport) {
		e.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false", v1alpha1.AnnotationWeight: "3"}
	}
	svc := fleet.NewService(ns, "web")
	east.Serve(t, svc, "10.1.0.1")
	east.Export(t, ns, "web", classic)
	for _, m := range []*fleet.Member{east, north} {
		harness.Eventually(t, "east's own address in "+m.ID, func() error {
			items, err := m.ImportedSlices(ns, "web")
			if err != nil || len(items) != 1 || len(items[0].Endpoints) != 1 {
				return fmt.Errorf("slices %v: %w", items, err)
			}
			if got := items[0].Endpoints[0].Addresses[0]; got != svc.Spec.ClusterIP || items[0].Annotations[v1alpha1.AnnotationWeight] != "3" {
				return fmt.Errorf("address %s, annotations %v", got, items[0].Annotations)
			}
			return nil
		})
		si := waitReachable(t, m, ns, "web", 0)
		if si.Annotations[v1alpha1.AnnotationMode] != v1alpha1.ModeClassic {
			t.Errorf("annotations %v", si.Annotations)
		}
		if _, err := derived(m, ns); err == nil {
			t.Errorf("%s derived a Service for a classic service", m.ID)
		}
	}
}
