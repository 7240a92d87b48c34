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

// objectVersions returns the resourceVersions of all objects that the tested commands could write.
func (env *environment) objectVersions(where string) map[string]string {
	env.t.Helper()
	found := map[string]string{}
	for _, kind := range []client.Object{
		&corev1.Namespace{}, &corev1.Secret{}, &corev1.ServiceAccount{}, &corev1.ConfigMap{},
		&rbacv1.Role{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{},
		&coordinationv1.Lease{}, &discoveryv1.EndpointSlice{}, &apiextensionsv1.CustomResourceDefinition{},
		&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&v1alpha1.ClusterSet{}, &v1alpha1.Cluster{}, &v1alpha1.ExportRecord{}, &mcsv1beta1.ServiceImport{}, &mcsv1beta1.ServiceExport{},
		&aboutv1beta1.ClusterProperty{}, &claimsv1.ClusterClaim{},
	} {
		gvk, err := env.clients[where].GroupVersionKindFor(kind)
		if err != nil {
			env.t.Fatal(err)
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		if err := env.clients[where].List(env.t.Context(), list); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			env.t.Fatalf("list %s: %v", gvk.Kind, err)
		}
		for i := range list.Items {
			if list.Items[i].Namespace == metav1.NamespaceSystem {
				continue // the API server renews its own leases there
			}
			found[fmt.Sprintf("%s %s/%s", gvk.Kind, list.Items[i].Namespace, list.Items[i].Name)] = list.Items[i].ResourceVersion
		}
	}
	return found
}

// expectNoWrites fails the test if do writes anything in any of the clusters.
func (env *environment) expectNoWrites(t testing.TB, what string, do func()) {
	t.Helper()
	before := map[string]map[string]string{}
	for name := range env.clients {
		before[name] = env.objectVersions(name)
	}
	do()
	for name := range env.clients {
		after := env.objectVersions(name)
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

// newRecord returns the record that a member's agent would publish for a service.
func newRecord(namespace, id string, service types.NamespacedName) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.RecordName(service, id), Labels: objects.Labels(service, id)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: service.Name, ServiceNamespace: service.Namespace, ClusterID: v1alpha1.ClusterID(id), ExportedAt: metav1.Now(),
			Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			UseClusterSetIP: true, RequestedClusterSetIP: true,
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

// newSlice returns a slice that a member's agent would publish for a service.
func newSlice(namespace, id string, service types.NamespacedName) *discoveryv1.EndpointSlice {
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

// newAggregate returns an aggregate as a member's agent would write it.
func newAggregate(namespace, writer string, service types.NamespacedName, ips ...string) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.AggregateName(service), Labels: objects.Labels(service, "")},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}, IPs: ips},
	}
	si.Labels[v1alpha1.LabelWrittenBy] = writer
	si.Labels[objects.LabelManagedBy] = objects.ManagedBySeamark
	return si
}

// publishService creates the objects of a service on the broker, as if these members exported it,
// with a clusterset IP.
func (env *environment) publishService(namespace string, service types.NamespacedName, ip string, ids ...string) {
	env.t.Helper()
	for _, id := range ids {
		env.create("broker", newRecord(namespace, id, service), newSlice(namespace, id, service))
	}
	si := newAggregate(namespace, ids[0], service, ip)
	env.create("broker", si)
	if err := env.clients["broker"].Get(env.t.Context(), client.ObjectKeyFromObject(si), si); err != nil {
		env.t.Fatal(err)
	}
	si.Status.Clusters = nil
	for _, id := range ids {
		si.Status.Clusters = append(si.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: id})
	}
	if err := env.clients["broker"].Status().Update(env.t.Context(), si); err != nil {
		env.t.Fatal(err)
	}
}
