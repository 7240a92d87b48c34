package cli

import (
	"fmt"
	"maps"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// versions are the resource versions of everything a command could write.
func (b *bed) versions(where string) map[string]string {
	b.t.Helper()
	found := map[string]string{}
	for _, kind := range []client.Object{
		&corev1.Namespace{}, &corev1.Secret{}, &corev1.ServiceAccount{}, &corev1.ConfigMap{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{},
		&coordinationv1.Lease{}, &discoveryv1.EndpointSlice{}, &apiextensionsv1.CustomResourceDefinition{},
		&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&v1alpha1.ClusterSet{}, &v1alpha1.Cluster{}, &v1alpha1.ExportRecord{}, &mcsv1beta1.ServiceImport{}, &mcsv1beta1.ServiceExport{},
		&aboutv1beta1.ClusterProperty{}, &claimsv1.ClusterClaim{},
	} {
		gvk, err := b.clients[where].GroupVersionKindFor(kind)
		if err != nil {
			b.t.Fatal(err)
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		if err := b.clients[where].List(b.t.Context(), list); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			b.t.Fatalf("list %s: %v", gvk.Kind, err)
		}
		for i := range list.Items {
			if list.Items[i].Namespace == metav1.NamespaceSystem {
				continue // the API server keeps its own leases there
			}
			found[fmt.Sprintf("%s %s/%s", gvk.Kind, list.Items[i].Namespace, list.Items[i].Name)] = list.Items[i].ResourceVersion
		}
	}
	return found
}

// unchanged fails the test if do writes anything in any of the clusters.
func (b *bed) unchanged(t testing.TB, what string, do func()) {
	t.Helper()
	before := map[string]map[string]string{}
	for name := range b.clients {
		before[name] = b.versions(name)
	}
	do()
	for name := range b.clients {
		after := b.versions(name)
		if maps.Equal(before[name], after) {
			continue
		}
		for key := range after {
			if before[name][key] != after[key] {
				t.Errorf("%s wrote %s in %s", what, key, name)
			}
		}
		for key := range before[name] {
			if _, ok := after[key]; !ok {
				t.Errorf("%s deleted %s in %s", what, key, name)
			}
		}
	}
}

// record is what a member's agent would publish of a service.
func record(namespace, id string, service types.NamespacedName) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.RecordName(service, id), Labels: objects.Labels(service, id)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: service.Name, ServiceNamespace: service.Namespace, ClusterID: v1alpha1.ClusterID(id), ExportedAt: metav1.Now(),
			Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true,
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(namespace, id string, service types.NamespacedName) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: objects.SliceName(service, id, "one"), Labels: objects.Labels(service, id),
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}}},
	}
	s.Labels[discoveryv1.LabelManagedBy] = objects.ManagedBy
	return s
}

func aggregate(namespace, writer string, service types.NamespacedName, ips ...string) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.AggregateName(service), Labels: objects.Labels(service, "")},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}, IPs: ips},
	}
	si.Labels[v1alpha1.LabelWrittenBy] = writer
	si.Labels[objects.LabelManagedBy] = objects.ManagedBySeamark
	return si
}

// publish puts a service on the broker as the members named export it, with a clusterset IP.
func (b *bed) publish(namespace string, service types.NamespacedName, ip string, ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.create("hub", record(namespace, id, service), slice(namespace, id, service))
	}
	si := aggregate(namespace, ids[0], service, ip)
	b.create("hub", si)
	if err := b.clients["hub"].Get(b.t.Context(), client.ObjectKeyFromObject(si), si); err != nil {
		b.t.Fatal(err)
	}
	si.Status.Clusters = nil
	for _, id := range ids {
		si.Status.Clusters = append(si.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: id})
	}
	if err := b.clients["hub"].Status().Update(b.t.Context(), si); err != nil {
		b.t.Fatal(err)
	}
}
