package agent_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
)

func TestExportAndUnexportReachAllMembers(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east := f.Members[0]
	svc := fleet.NewService(ns, "web")
	east.Serve(t, svc, "10.1.0.1", "10.1.0.2")
	east.Export(t, ns, "web")
	east.AwaitExported(t, ns, "web")
	east.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid)
	east.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts)
	for _, m := range f.Members {
		si := m.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1", "10.1.0.2"}})
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
			len(s.OwnerReferences) != 0 {
			t.Errorf("%s: slice labels %v owners %v", m.ID, s.Labels, s.OwnerReferences)
		}
	}
	awaitAggregate(t, f, ns, "web", "east")
	east.Unexport(t, ns, "web")
	for _, m := range f.Members {
		m.AwaitNoImport(t, ns, "web")
	}
	awaitNothingOnBroker(t, f, ns)
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
	west.AwaitExported(t, ns, "late")
	f.Members[2].AwaitImport(t, ns, "late", map[string][]string{"west": {"10.2.0.1"}})
	// Deleting the Service withdraws its export.
	west.Delete(t, fleet.NewService(ns, "late"))
	west.Awaits(t, ns, "late", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService)
	f.Members[2].AwaitNoImport(t, ns, "late")
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
		si := west.AwaitImport(t, ns, name, map[string][]string{"east": {"10.1.0.1"}})
		if si.Spec.Type != test.want || len(si.Spec.IPFamilies) != 1 {
			t.Errorf("%s: %+v", name, si.Spec)
		}
	}
	east.Create(t, fleet.NewService(ns, "external", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	}))
	east.Export(t, ns, "external")
	east.Awaits(t, ns, "external", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse,
		mcsv1beta1.ServiceExportReasonInvalidServiceType)
	west.AwaitNoImport(t, ns, "external")
	awaitNothingOnBroker(t, f, ns, "external")
}

// All fields of a Service and its endpoints that mean something in other clusters are exported.
// Labels and annotations of the Service and of the ServiceExport are not.
func TestExportedFields(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, north := f.Members[0], f.Members[2]
	east.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-" + ns, Labels: map[string]string{corev1.LabelTopologyRegion: "moon"},
	}})
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
	si := north.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1", "10.1.0.2"}})
	leaked := si.Labels["of-service"] + si.Labels["of-export"] + si.Annotations["of-service"] + si.Annotations["of-export"]
	if si.Labels["team"] != "shop" || si.Annotations["note"] != "hello" || leaked != "" {
		t.Errorf("labels %v annotations %v", si.Labels, si.Annotations)
	}
	spec := si.Spec
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP || *spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 77 ||
		*spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal || *spec.TrafficDistribution != "PreferClose" ||
		*spec.Ports[0].AppProtocol != "kubernetes.io/h2c" {
		t.Errorf("spec: %+v", spec)
	}
	items, err := north.ImportedSlices(ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	first, second := items[0].Endpoints[0], items[0].Endpoints[1]
	if *first.Hostname != "pet-0" || *first.Zone != "moon-1" || *first.NodeName != "node-"+ns ||
		*second.Conditions.Ready || !*second.Conditions.Serving || !*second.Conditions.Terminating {
		t.Errorf("endpoints: %+v", items[0].Endpoints)
	}
	if items[0].Annotations["seamark.dev/region"] != "moon" {
		t.Errorf("annotations: %v", items[0].Annotations)
	}
}
