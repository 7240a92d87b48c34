package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func exportedAndReady(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported)
}

func imported(t *testing.T, m *fleet.Member, ns, name string, want map[string][]string) *mcsv1beta1.ServiceImport {
	t.Helper()
	var si *mcsv1beta1.ServiceImport
	harness.Eventually(t, fmt.Sprintf("%s/%s imported in %s", ns, name, m.ID), func() (err error) {
		if si, err = m.Import(ns, name); err != nil {
			return err
		}
		if len(si.Status.Conditions) == 0 {
			return fmt.Errorf("no status yet")
		}
		var clusters []string
		for _, c := range si.Status.Clusters {
			clusters = append(clusters, c.Cluster)
		}
		for source := range want {
			if !slices.Contains(clusters, source) {
				return fmt.Errorf("clusters: %v", clusters)
			}
		}
		return sameAddresses(m, ns, name, want)
	})
	return si
}

func notImported(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s/%s gone from %s", ns, name, m.ID), func() error {
		if _, err := m.Import(ns, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ServiceImport is still there: %w", err)
		}
		items, err := m.ImportedSlices(ns, name)
		if err != nil || len(items) > 0 {
			return fmt.Errorf("%d slices are still there: %w", len(items), err)
		}
		return nil
	})
}

func TestExportAppearsEverywhereAndGoes(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east := f.Members[0]
	svc := fleet.NewService(ns, "web")
	east.Serve(t, svc, "10.1.0.1", "10.1.0.2")
	east.Export(t, ns, "web")
	exportedAndReady(t, east, ns, "web")
	east.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid)
	east.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts)
	for _, m := range f.Members {
		si := imported(t, m, ns, "web", map[string][]string{"east": {"10.1.0.1", "10.1.0.2"}})
		if si.Spec.Type != mcsv1beta1.ClusterSetIP || len(si.Spec.Ports) != 1 || si.Spec.Ports[0].Port != 80 || si.Spec.Ports[0].Name != "http" {
			t.Errorf("%s: spec %+v", m.ID, si.Spec)
		}
		if si.Status.EndpointSliceObjects != mcsv1beta1.EndpointSliceObjectsPresent || si.Status.Conditions[0].Status != metav1.ConditionTrue {
			t.Errorf("%s: status %+v", m.ID, si.Status)
		}
		items, err := m.ImportedSlices(ns, "web")
		if err != nil || len(items) != 1 {
			t.Fatalf("%s: %d slices, %v", m.ID, len(items), err)
		}
		s := items[0]
		if s.Labels[discoveryv1.LabelManagedBy] != "agent.seamark.dev" || s.Labels[discoveryv1.LabelServiceName] == "web" ||
			len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != si.UID {
			t.Errorf("%s: slice labels %v owners %v", m.ID, s.Labels, s.OwnerReferences)
		}
	}
	aggregated(t, f, ns, "web", "east")
	east.Unexport(t, ns, "web")
	for _, m := range f.Members {
		notImported(t, m, ns, "web")
	}
	nothingOnBroker(t, f, ns)
}

func TestExportBeforeService(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	west := f.Members[1]
	west.Export(t, ns, "late")
	c := west.Awaits(t, ns, "late", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService)
	if !strings.Contains(c.Message, "create it") {
		t.Errorf("message: %s", c.Message)
	}
	west.Serve(t, fleet.NewService(ns, "late"), "10.2.0.1")
	exportedAndReady(t, west, ns, "late")
	imported(t, f.Members[2], ns, "late", map[string][]string{"west": {"10.2.0.1"}})
	// Service deleted under its export: withdrawn.
	west.Delete(t, fleet.NewService(ns, "late"))
	west.Awaits(t, ns, "late", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService)
	notImported(t, f.Members[2], ns, "late")
}

func TestServiceTypes(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		want   mcsv1beta1.ServiceImportType
	}{
		"clusterip":    {func(*corev1.Service) {}, mcsv1beta1.ClusterSetIP},
		"nodeport":     {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }, mcsv1beta1.ClusterSetIP},
		"loadbalancer": {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }, mcsv1beta1.ClusterSetIP},
		"headless":     {func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, mcsv1beta1.Headless},
	} {
		east.Serve(t, fleet.NewService(ns, name, test.change), "10.1.0.1")
		east.Export(t, ns, name)
		si := imported(t, west, ns, name, map[string][]string{"east": {"10.1.0.1"}})
		if si.Spec.Type != test.want || len(si.Spec.IPFamilies) != 1 {
			t.Errorf("%s: %+v", name, si.Spec)
		}
	}
	east.Create(t, fleet.NewService(ns, "external", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	}))
	east.Export(t, ns, "external")
	east.Awaits(t, ns, "external", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonInvalidServiceType)
	notImported(t, west, ns, "external")
	nothingOnBroker(t, f, ns, "external")
}

// Everything about a service and its endpoints that means something elsewhere travels; nobody's labels and annotations do.
func TestWhatTravels(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, north := f.Members[0], f.Members[2]
	east.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + ns, Labels: map[string]string{corev1.LabelTopologyRegion: "moon"}}})
	svc := fleet.NewService(ns, "web", func(s *corev1.Service) {
		s.Labels, s.Annotations = map[string]string{"of-service": "1"}, map[string]string{"of-service": "1"}
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](77)}}
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
		s.Spec.Ports = []corev1.ServicePort{{Name: "grpc", Port: 99, Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("kubernetes.io/h2c")}}
	})
	slice := fleet.NewSlice(svc, "abc", "10.1.0.1", "10.1.0.2")
	slice.Endpoints[0].Hostname, slice.Endpoints[0].Zone, slice.Endpoints[0].NodeName = ptr.To("pet-0"), ptr.To("moon-1"), ptr.To("node-"+ns)
	slice.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	east.Create(t, svc, slice)
	east.Export(t, ns, "web", func(e *mcsv1beta1.ServiceExport) {
		e.Labels, e.Annotations = map[string]string{"of-export": "1"}, map[string]string{"of-export": "1"}
		e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"team": "shop"}, map[string]string{"note": "hello"}
	})
	si := imported(t, north, ns, "web", map[string][]string{"east": {"10.1.0.1", "10.1.0.2"}})
	if si.Labels["team"] != "shop" || si.Annotations["note"] != "hello" || si.Labels["of-service"]+si.Labels["of-export"]+si.Annotations["of-service"]+si.Annotations["of-export"] != "" {
		t.Errorf("labels %v annotations %v", si.Labels, si.Annotations)
	}
	spec := si.Spec
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP || *spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 77 ||
		*spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal || *spec.TrafficDistribution != "PreferClose" || *spec.Ports[0].AppProtocol != "kubernetes.io/h2c" {
		t.Errorf("spec: %+v", spec)
	}
	items, err := north.ImportedSlices(ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	first, second := items[0].Endpoints[0], items[0].Endpoints[1]
	if *first.Hostname != "pet-0" || *first.Zone != "moon-1" || *first.NodeName != "node-"+ns || *second.Conditions.Ready || !*second.Conditions.Serving || !*second.Conditions.Terminating {
		t.Errorf("endpoints: %+v", items[0].Endpoints)
	}
	if items[0].Annotations["seamark.dev/region"] != "moon" {
		t.Errorf("annotations: %v", items[0].Annotations)
	}
}
