// Package trust attacks a broker with a member's credential from an invitation. The credential must
// not allow changes to another member, to the clusterset or to the cluster of the broker, and it
// must allow everything that the member's agent needs.
package trust

import (
	"context"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Blocks of the members: east 243.0.0.0/18, west 243.0.64.0/18, narrow 243.0.128.0/18.
const (
	namespace = "seamark-broker"
	eastIP    = "243.0.0.1"
	westIP    = "243.0.64.1"
)

var (
	web     = types.NamespacedName{Namespace: "shop", Name: "web"}      // exported by east and west
	cart    = types.NamespacedName{Namespace: "shop", Name: "cart"}     // exported by west alone
	private = types.NamespacedName{Namespace: "private", Name: "vault"} // narrow must not export it
	system  = types.NamespacedName{Namespace: "kube-system", Name: "dns"}
)

// fixture is a broker with three members. East is the attacker; narrow may export from shop only.
type fixture struct {
	admin client.Client
	// east and narrow are clients with the credentials of these members.
	east, narrow client.WithWatch
	config       *rest.Config
	memberships  map[string]objects.Membership
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx, cp := t.Context(), harness.Clusters(t, 1)[0]
	admin, err := brokeradmin.NewClient(cp.Config())
	must(t, err)
	s := &fixture{admin: admin, memberships: map[string]objects.Membership{}}
	_, err = brokeradmin.Deploy(ctx, admin, brokeradmin.DeployOptions{Namespace: namespace})
	must(t, err)
	for _, id := range []string{"east", "west", "narrow"} {
		o := brokeradmin.InviteOptions{Namespace: namespace, Server: cp.Config().Host, CAData: cp.Config().CAData}
		if id == "narrow" {
			o.AllowedNamespaces = []string{"shop"}
		}
		invited, err := brokeradmin.Invite(ctx, admin, id, o)
		must(t, err)
		s.memberships[id] = invited.Membership
	}
	s.config = s.memberships["east"].Config()
	s.east, s.narrow = s.as(t, "east"), s.as(t, "narrow")
	s.createVictims(t)
	s.waitForPolicies(t)
	return s
}

func (s *fixture) as(t testing.TB, id string) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(s.memberships[id].Config(), client.Options{Scheme: brokeradmin.NewScheme()})
	must(t, err)
	return c
}

// createVictims creates objects to attack.
func (s *fixture) createVictims(t testing.TB) {
	t.Helper()
	west := s.as(t, "west")
	for _, obj := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "victim"}, StringData: map[string]string{"key": "value"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "victim"}},
	} {
		must(t, s.admin.Create(t.Context(), obj))
	}
	for _, service := range []types.NamespacedName{web, cart} {
		must(t, west.Create(t.Context(), record("west", service)))
		must(t, west.Create(t.Context(), slice("west", service)))
	}
	for service, ip := range map[types.NamespacedName]string{web: eastIP, cart: westIP} {
		si := aggregate("admin", service, ip)
		must(t, s.admin.Create(t.Context(), si))
		si.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "west"}}
		must(t, s.admin.Status().Update(t.Context(), si))
	}
}

// waitForPolicies waits until the policies are in force, which is a moment after they were created.
// Each policy has its probe.
func (s *fixture) waitForPolicies(t testing.TB) {
	t.Helper()
	for what, probe := range map[string]func(context.Context) error{
		"tokens":         func(ctx context.Context) error { return mint(ctx, s.east, "east", year) },
		"owned":          func(ctx context.Context) error { return s.east.Delete(ctx, slice("west", cart), client.DryRunAll) },
		"grants of east": func(ctx context.Context) error { return s.east.Create(ctx, record("east", system), client.DryRunAll) },
		"grants of narrow": func(ctx context.Context) error {
			return s.narrow.Create(ctx, record("narrow", private), client.DryRunAll)
		},
		"aggregates": func(ctx context.Context) error { return s.east.Delete(ctx, aggregate("east", cart), client.DryRunAll) },
		"aggregate grants": func(ctx context.Context) error {
			return s.narrow.Create(ctx, aggregate("narrow", private), client.DryRunAll)
		},
	} {
		harness.Eventually(t, "the policy for "+what+" is in force", func() error {
			if err := probe(t.Context()); !apierrors.IsForbidden(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func record(id string, service types.NamespacedName) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.RecordName(service, id), Labels: objects.Labels(service, id)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: service.Name, ServiceNamespace: service.Namespace, ClusterID: v1alpha1.ClusterID(id), ExportedAt: metav1.Now().Rfc3339Copy(),
			Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true,
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(id string, service types.NamespacedName) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: objects.SliceName(service, id, "one"), Labels: objects.Labels(service, id)},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}}},
	}
	s.Labels[discoveryv1.LabelManagedBy] = objects.ManagedBy
	return s
}

func aggregate(writer string, service types.NamespacedName, ips ...string) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.AggregateName(service), Labels: objects.Labels(service, "")},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}, IPs: ips},
	}
	si.Labels[v1alpha1.LabelWrittenBy] = writer
	si.Labels[objects.LabelManagedBy] = objects.ManagedBySeamark
	return si
}

// Everything that a member's agent does works with the same credential.
func TestLegitimateWork(t *testing.T) {
	s := sharedFixture(t)
	ctx, c := t.Context(), s.east
	api := types.NamespacedName{Namespace: "shop", Name: "api"}
	r, sl, si := record("east", api), slice("east", api), aggregate("east", api, "243.0.0.7")
	lease, cluster := &coordinationv1.Lease{}, &v1alpha1.Cluster{}
	own := types.NamespacedName{Namespace: namespace, Name: "east"}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"read the ClusterSet", func() error { return c.List(ctx, &v1alpha1.ClusterSetList{}, client.InNamespace(namespace)) }},
		{"read the members", func() error { return c.List(ctx, &v1alpha1.ClusterList{}, client.InNamespace(namespace)) }},
		{"read all leases", func() error { return c.List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(namespace)) }},
		{"watch records", func() error {
			w, err := c.Watch(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace(namespace))
			if err == nil {
				w.Stop()
			}
			return err
		}},
		{"publish a record", func() error { return c.Create(ctx, r) }},
		{"change it", func() error { r.Spec.Ports[0].Port = 81; return c.Update(ctx, r) }},
		{"publish a slice", func() error { return c.Create(ctx, sl) }},
		{"change it", func() error { sl.Endpoints[0].Addresses = []string{"10.1.2.4"}; return c.Update(ctx, sl) }},
		{"patch it", func() error {
			return c.Patch(ctx, sl, client.RawPatch(types.MergePatchType, []byte(`{"endpoints":[]}`)))
		}},
		{"write the aggregate with a clusterset IP of its block", func() error { return c.Create(ctx, si) }},
		{"list itself as an exporter", func() error {
			si.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "east"}}
			return c.Status().Update(ctx, si)
		}},
		{"change the aggregate and keep its clusterset IP", func() error {
			si.Spec.Ports = []mcsv1beta1.ServicePort{{Port: 81, Protocol: corev1.ProtocolTCP}}
			return c.Update(ctx, si)
		}},
		{"take over an aggregate another wrote", func() error {
			shared := &mcsv1beta1.ServiceImport{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(aggregate("", web)), shared); err != nil {
				return err
			}
			shared.Labels[v1alpha1.LabelWrittenBy] = "east"
			return c.Update(ctx, shared)
		}},
		{"renew its lease", func() error {
			if err := c.Get(ctx, own, lease); err != nil {
				return err
			}
			lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To("uid"), ptr.To(metav1.NowMicro())
			return c.Update(ctx, lease)
		}},
		{"update its status", func() error {
			if err := c.Get(ctx, own, cluster); err != nil {
				return err
			}
			cluster.Status.AgentVersion = "test"
			return c.Status().Update(ctx, cluster)
		}},
		{"renew its token", func() error { return mint(ctx, c, "east", member.TokenLifetime) }},
		{"withdraw the slice", func() error { return c.Delete(ctx, sl) }},
		{"withdraw the record", func() error { return c.Delete(ctx, r) }},
		{"delete the aggregate as the last exporter", func() error { return c.Delete(ctx, si) }},
		{"export from the one namespace it is limited to", func() error {
			allowed := record("narrow", web)
			if err := s.narrow.Create(ctx, allowed); err != nil {
				return err
			}
			return s.narrow.Delete(ctx, allowed)
		}},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}
