package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

// broker is a broker namespace with the members east, east2, b.east, a, a.b and sys. RBAC allows
// them everything, so only admission confines them.
type broker struct {
	ns    string
	admin client.Client
	as    map[string]client.Client
}

// ipv4 are the families of most services.
var ipv4 = []corev1.IPFamily{corev1.IPv4Protocol}

var members = []v1alpha1.ClusterID{"east", "east2", "b.east", "a", "a.b", "sys"}

func newBroker(t testing.TB) *broker {
	t.Helper()
	cp := harness.Clusters(t, 1)[0]
	admin := newClient(t, cp.Config())
	install(t, admin, crds.Broker)
	if _, err := policies.Install(t.Context(), admin, policies.Broker); err != nil {
		t.Fatal(err)
	}
	b := &broker{ns: harness.Namespace(t, cp), admin: admin, as: map[string]client.Client{}}
	grants, err := policies.Grants(b.ns)
	b.must(t, err)
	_, err = policies.Apply(t.Context(), admin, grants...)
	b.must(t, err)
	b.must(t, admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "members", Namespace: b.ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts"}},
	}))
	for i, id := range members {
		cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: string(id), Namespace: b.ns}}
		cluster.Spec.ClusterSetIPBlocks = []v1alpha1.CIDR{
			v1alpha1.CIDR(fmt.Sprintf("243.%d.0.0/16", i)), v1alpha1.CIDR(fmt.Sprintf("fd00:243::%d:0/112", i)),
		}
		if id == "sys" {
			cluster.Spec.AllowedNamespaces = []string{"kube-system", "shop"}
		}
		b.must(t, admin.Create(t.Context(), cluster))
		if _, err := policies.Apply(t.Context(), admin, policies.MemberBindings(b.ns, id)...); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(cp.Config())
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + b.ns + ":" + objects.MemberAccount(string(id)),
			Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		}
		b.as[string(id)] = newClient(t, config)
	}
	b.awaitPolicies(t)
	return b
}

func (b *broker) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// awaitPolicies waits until every policy and every binding has denied a request once.
func (b *broker) awaitPolicies(t testing.TB) {
	t.Helper()
	denied := func(id, policy string, o client.Object, fragment string) {
		harness.Eventually(t, policy+" applies to "+id, func() error {
			err := b.as[id].Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), fragment) {
				return fmt.Errorf("got %w", errors.Join(errors.New("no such denial"), err))
			}
			return nil
		})
	}
	for _, member := range members {
		id := string(member)
		denied(id, "seamark-broker-owned", b.record("web", "shop", "unknown"), "belongs to cluster unknown")
		denied(id, "seamark-broker-leases", b.lease("unknown", id), "is not the lease")
		denied(id, "seamark-broker-clusters", &v1alpha1.Cluster{ObjectMeta: b.meta("x", nil)}, "is written by the admin")
		denied(id, "seamark-broker-aggregates", b.serviceImport("web", "shop", "unknown"), "seamark.dev/written-by")
		denied(id, "seamark-broker-grants-owned", b.slice("web", "seamark-x", id), "may not export")
		denied(id, "seamark-broker-grants-aggregates", b.serviceImport("web", "seamark-x", id), "may not export")
	}
}

func (b *broker) meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: b.ns, Labels: labels}
}

func labels(service, namespace, cluster string) map[string]string {
	return map[string]string{
		mcsv1beta1.LabelServiceName: service, v1alpha1.LabelServiceNamespace: namespace, mcsv1beta1.LabelSourceCluster: cluster,
	}
}

func (b *broker) record(service, namespace, cluster string) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{
		ObjectMeta: b.meta(service+"."+namespace+"."+cluster, labels(service, namespace, cluster)),
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: service, ServiceNamespace: namespace, ClusterID: v1alpha1.ClusterID(cluster), ExportedAt: metav1.Now(),
			Type: mcsv1beta1.ClusterSetIP, IPFamilies: ipv4, Ports: []v1alpha1.ServicePort{{Port: 80, Protocol: "TCP"}},
		},
	}
}

func (b *broker) slice(service, namespace, cluster string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  b.meta(service+"."+namespace+"."+cluster+".0123abcd", labels(service, namespace, cluster)),
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}}},
	}
}

func (b *broker) lease(name, cluster string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: b.meta(name, map[string]string{mcsv1beta1.LabelSourceCluster: cluster})}
}

func (b *broker) serviceImport(service, namespace, writer string, ips ...string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: b.meta(service+"."+namespace, map[string]string{
			mcsv1beta1.LabelServiceName: service, v1alpha1.LabelServiceNamespace: namespace, v1alpha1.LabelWrittenBy: writer,
		}),
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: ips, Ports: []mcsv1beta1.ServicePort{{Port: 80}},
		},
	}
}

// with changes an object and returns it.
func with[T client.Object](o T, change func(T)) T {
	change(o)
	return o
}

func owned[T client.Object](o T) T {
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: "1-2-3"}})
	return o
}

func finalized[T client.Object](o T) T {
	o.SetFinalizers([]string{"example.com/hold"})
	return o
}

func relabelled[T client.Object](o T, key, value string) T {
	all := o.GetLabels()
	if value == "" {
		delete(all, key)
	} else {
		all[key] = value
	}
	o.SetLabels(all)
	return o
}

func (b *broker) create(t *testing.T, o client.Object) func(client.Client) error {
	return func(c client.Client) error { return c.Create(t.Context(), o, client.DryRunAll) }
}

func (b *broker) remove(t *testing.T, o client.Object) func(client.Client) error {
	return func(c client.Client) error { return c.Delete(t.Context(), o, client.DryRunAll) }
}

// change returns a function that reads an object, changes it and writes it.
func change[T client.Object](t *testing.T, o T, edit func(T)) func(client.Client) error {
	return func(c client.Client) error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		edit(o)
		return c.Update(t.Context(), o, client.DryRunAll)
	}
}
