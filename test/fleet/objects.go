package fleet

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/harness"
)

// Port returns a TCP port of a Service.
func Port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
}

// NewService returns a Service with a port http/80.
func NewService(namespace, name string, change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{Port("http", 80)}},
	}
	for _, c := range change {
		c(svc)
	}
	return svc
}

// NewSlice returns an EndpointSlice like that of the endpointslice controller. There are no pods
// here, so the test chooses the ready addresses.
func NewSlice(svc *corev1.Service, suffix string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: svc.Name + "-" + suffix,
			Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range svc.Spec.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To(p.Port + 8000), Protocol: ptr.To(p.Protocol)})
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		})
	}
	return s
}

// Create creates objects in the member's cluster.
func (m *Member) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := m.Client.Create(context.Background(), obj); err != nil {
			t.Fatalf("create %T %s in %s: %v", obj, client.ObjectKeyFromObject(obj), m.ID, err)
		}
	}
}

// Delete deletes objects from the member's cluster.
func (m *Member) Delete(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := m.Client.Delete(context.Background(), obj); err != nil {
			t.Fatalf("delete %T %s in %s: %v", obj, client.ObjectKeyFromObject(obj), m.ID, err)
		}
	}
}

// Namespace creates a namespace of that name in the member's cluster.
func (m *Member) Namespace(t testing.TB, name string) {
	t.Helper()
	m.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// NewNamespace creates a namespace with a new name, the same in the given members, and returns the
// name.
func NewNamespace(t testing.TB, members ...*Member) string {
	t.Helper()
	name := "t-" + rand.String(8)
	for _, m := range members {
		m.Namespace(t, name)
	}
	return name
}

// Serve creates a Service with a slice of these ready addresses.
func (m *Member) Serve(t testing.TB, svc *corev1.Service, addresses ...string) {
	t.Helper()
	m.Create(t, svc, NewSlice(svc, "abc", addresses...))
}

// Export exports a service.
func (m *Member) Export(t testing.TB, namespace, name string, change ...func(*mcsv1beta1.ServiceExport)) *mcsv1beta1.ServiceExport {
	t.Helper()
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, c := range change {
		c(export)
	}
	m.Create(t, export)
	return export
}

// Unexport deletes the export of a service.
func (m *Member) Unexport(t testing.TB, namespace, name string) {
	t.Helper()
	m.Delete(t, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// Update reads an object, changes it and writes it. It retries on a conflict.
func Update[T client.Object](t testing.TB, m *Member, namespace, name string, obj T, change func(T)) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("update %T %s/%s in %s", obj, namespace, name, m.ID), func() error {
		if err := m.Client.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, obj); err != nil {
			return err
		}
		change(obj)
		return m.Client.Update(context.Background(), obj)
	})
}

// Import reads the member's ServiceImport.
func (m *Member) Import(namespace, name string) (*mcsv1beta1.ServiceImport, error) {
	si := &mcsv1beta1.ServiceImport{}
	return si, m.Client.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, si)
}

// ImportedSlices reads the member's imported slices of a service.
func (m *Member) ImportedSlices(namespace, name string) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := m.Client.List(context.Background(), &list, client.InNamespace(namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: name})
	return list.Items, err
}

// Addresses returns the addresses of a service that the member imported, by source cluster, sorted.
func (m *Member) Addresses(namespace, name string) (map[string][]string, error) {
	items, err := m.ImportedSlices(namespace, name)
	out := map[string][]string{}
	for _, s := range items {
		source := s.Labels[mcsv1beta1.LabelSourceCluster]
		for _, e := range s.Endpoints {
			out[source] = append(out[source], e.Addresses...)
		}
		slices.Sort(out[source])
	}
	return out, err
}

// Condition returns a condition of the member's ServiceExport.
func (m *Member) Condition(namespace, name string, of mcsv1beta1.ServiceExportConditionType) (metav1.Condition, error) {
	export := &mcsv1beta1.ServiceExport{}
	if err := m.Client.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, export); err != nil {
		return metav1.Condition{}, err
	}
	if c := meta.FindStatusCondition(export.Status.Conditions, string(of)); c != nil {
		return *c, nil
	}
	return metav1.Condition{}, fmt.Errorf("no condition %s yet", of)
}

// Awaits waits until a member's export has a condition with this status and reason, and returns it.
func (m *Member) Awaits(
	t testing.TB, namespace, name string,
	of mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason,
) metav1.Condition {
	t.Helper()
	var c metav1.Condition
	harness.Eventually(t, fmt.Sprintf("%s=%s/%s on %s/%s in %s", of, status, reason, namespace, name, m.ID), func() (err error) {
		if c, err = m.Condition(namespace, name, of); err != nil {
			return err
		}
		if c.Status != status || c.Reason != string(reason) {
			return fmt.Errorf("it is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
	return c
}
