package trust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
)

var shared *fixture

// sharedFixture returns the fixture of all tests of the package.
func sharedFixture(t *testing.T) *fixture {
	t.Helper()
	if shared == nil {
		shared = newFixture(t)
	}
	return shared
}

// attack is one thing a member must not be able to do.
type attack struct {
	name string
	try  func(ctx context.Context, s *fixture) error
}

// attackCount is the number of attacks that docs/security.md claims.
const attackCount = 87

func TestAttacksAreRefused(t *testing.T) {
	s := sharedFixture(t)
	before := s.victims(t)
	count := 0
	for _, group := range [][]attack{onRecords, onSlices, onAggregates, onMembership, onCluster, byEscalation} {
		for _, a := range group {
			count++
			t.Run(a.name, func(t *testing.T) {
				err := a.try(t.Context(), s)
				// Invalid: the schema rejects it before a policy is evaluated.
				if err == nil || (!apierrors.IsForbidden(err) && !apierrors.IsInvalid(err)) {
					t.Errorf("not refused: %v", err)
				}
			})
		}
	}
	if count != attackCount {
		t.Errorf("%d attacks were tried, want %d", count, attackCount)
	}
	for name, version := range s.victims(t) {
		if before[name] != version {
			t.Errorf("%s changed", name)
		}
	}
}

// victims returns the resource versions of objects that must not change.
func (s *fixture) victims(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1alpha1.ClusterSetList{}, &v1alpha1.ClusterList{}, &v1alpha1.ExportRecordList{}, &discoveryv1.EndpointSliceList{},
		&mcsv1beta1.ServiceImportList{}, &coordinationv1.LeaseList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &corev1.ServiceAccountList{},
		&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &corev1.PodList{},
	} {
		must(t, s.admin.List(t.Context(), list, client.InNamespace(namespace)))
		for _, item := range items(t, list) {
			found[fmt.Sprintf("%T %s", list, item.GetName())] = item.GetResourceVersion()
		}
	}
	return found
}

// change reads an object as the attacker, changes it and tries to write it.
func change[T client.Object](ctx context.Context, c client.Client, obj T, edit func(T)) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	edit(obj)
	return c.Update(ctx, obj)
}

// changeOwn publishes a record of east's own, changes it and removes it again.
func (s *fixture) changeOwn(ctx context.Context, edit func(*v1alpha1.ExportRecord)) error {
	r := record("east", types.NamespacedName{Namespace: "shop", Name: "own"})
	r.Spec.ExportedAt = metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second)) // well after its admission
	if err := s.east.Create(ctx, r); err != nil {
		return fmt.Errorf("publish a record: %s", err.Error()) // not wrapped: that would count as refused
	}
	edit(r)
	return errors.Join(s.east.Update(ctx, r), s.east.Delete(ctx, r))
}

func label(obj client.Object, key, value string) {
	labels := obj.GetLabels()
	labels[key] = value
	obj.SetLabels(labels)
}

func token(ctx context.Context, c client.Client, id string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.MemberAccount(id)}}
	return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

// patchBeacons publishes beacons in the status of a Cluster.
func patchBeacons(ctx context.Context, c client.Client, id string, port int32, count int) error {
	beacons := v1alpha1.Beacons{Port: port, Key: make([]byte, 32)}
	for i := range count {
		beacons.Addresses = append(beacons.Addresses, v1alpha1.BeaconAddress{IP: fmt.Sprintf("10.1.0.%d", i+1)})
	}
	text, err := json.Marshal(map[string]any{"status": map[string]any{"beacons": beacons}})
	if err != nil {
		return err
	}
	return c.SubResource("status").Patch(ctx, &v1alpha1.Cluster{ObjectMeta: named(id)}, client.RawPatch(types.MergePatchType, text))
}

var owner = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "victim", UID: "x"}}

var onRecords = []attack{
	{"create a record for west", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, record("west", types.NamespacedName{Namespace: "shop", Name: "new"}))
	}},
	{"create a record named for west and labelled east", func(ctx context.Context, s *fixture) error {
		r := record("west", types.NamespacedName{Namespace: "shop", Name: "new"})
		label(r, mcsv1beta1.LabelSourceCluster, "east")
		return s.east.Create(ctx, r)
	}},
	{"create a record of east that names west in its spec", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.Spec.ClusterID = "west"
		return s.east.Create(ctx, r)
	}},
	{"create a record without labels", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.Labels = nil
		return s.east.Create(ctx, r)
	}},
	{"create a record that describes another service", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.Spec.ServiceName = "cart"
		return s.east.Create(ctx, r)
	}},
	{"create a record from kube-system", func(ctx context.Context, s *fixture) error { return s.east.Create(ctx, record("east", system)) }},
	{"create a record from seamark-system", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, record("east", types.NamespacedName{Namespace: "seamark-system", Name: "x"}))
	}},
	{"create a record from a namespace the admin excluded",
		func(ctx context.Context, s *fixture) error { return s.narrow.Create(ctx, record("narrow", private)) }},
	{"create a slice from a namespace the admin excluded",
		func(ctx context.Context, s *fixture) error { return s.narrow.Create(ctx, slice("narrow", private)) }},
	{"write an aggregate of a namespace the admin excluded",
		func(ctx context.Context, s *fixture) error { return s.narrow.Create(ctx, aggregate("narrow", private)) }},
	{"change west's record", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, record("west", web), func(r *v1alpha1.ExportRecord) { r.Spec.Ports[0].Port = 81 })
	}},
	{"relabel west's record as its own", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, record("west", web), func(r *v1alpha1.ExportRecord) { label(r, mcsv1beta1.LabelSourceCluster, "east") })
	}},
	{"patch west's record", func(ctx context.Context, s *fixture) error {
		return s.east.Patch(ctx, record("west", web),
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"exportedAt":"1970-01-01T00:00:00Z"}}`)))
	}},
	{"delete west's record", func(ctx context.Context, s *fixture) error { return s.east.Delete(ctx, record("west", web)) }},
	{"delete all records at once", func(ctx context.Context, s *fixture) error {
		return s.east.DeleteAllOf(ctx, &v1alpha1.ExportRecord{}, client.InNamespace(namespace))
	}},
	{"publish a record from before its admission", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.Spec.ExportedAt = metav1.Unix(0, 0)
		return s.east.Create(ctx, r)
	}},
	{"make its record older than its admission", func(ctx context.Context, s *fixture) error {
		return s.changeOwn(ctx, func(r *v1alpha1.ExportRecord) { r.Spec.ExportedAt = metav1.Unix(0, 0) })
	}},
	{"make its record a second older", func(ctx context.Context, s *fixture) error {
		return s.changeOwn(ctx, func(r *v1alpha1.ExportRecord) {
			r.Spec.ExportedAt = metav1.NewTime(r.Spec.ExportedAt.Add(-time.Second))
		})
	}},
	{"put a finalizer on its record", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.Finalizers = []string{"evil.example/hold"}
		return s.east.Create(ctx, r)
	}},
	{"put an owner on its record", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.OwnerReferences = owner
		return s.east.Create(ctx, r)
	}},
	{"write the status of west's record", func(ctx context.Context, s *fixture) error {
		r := record("west", web)
		if err := s.east.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
			return err
		}
		r.Spec.Ports[0].Port = 81
		return s.east.Status().Update(ctx, r)
	}},
}

var onSlices = []attack{
	{"create a slice for west", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, slice("west", types.NamespacedName{Namespace: "shop", Name: "new"}))
	}},
	{"create a slice of its own under west's name", func(ctx context.Context, s *fixture) error {
		sl := slice("west", web)
		sl.Name = objects.SliceName(web, "west", "two")
		label(sl, mcsv1beta1.LabelSourceCluster, "east")
		return s.east.Create(ctx, sl)
	}},
	{"put endpoints into west's slice", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, slice("west", cart), func(sl *discoveryv1.EndpointSlice) { sl.Endpoints[0].Addresses = []string{"10.6.6.6"} })
	}},
	{"relabel west's slice", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, slice("west", cart), func(sl *discoveryv1.EndpointSlice) { label(sl, mcsv1beta1.LabelSourceCluster, "east") })
	}},
	{"delete west's slice", func(ctx context.Context, s *fixture) error { return s.east.Delete(ctx, slice("west", cart)) }},
	{"delete all slices at once", func(ctx context.Context, s *fixture) error {
		return s.east.DeleteAllOf(ctx, &discoveryv1.EndpointSlice{}, client.InNamespace(namespace))
	}},
	{"put endpoints behind a Service of the broker's cluster", func(ctx context.Context, s *fixture) error {
		sl := slice("east", web)
		label(sl, discoveryv1.LabelServiceName, "kubernetes")
		return s.east.Create(ctx, sl)
	}},
	{"create a slice in another namespace", func(ctx context.Context, s *fixture) error {
		sl := slice("east", web)
		sl.Namespace = "default"
		return s.east.Create(ctx, sl)
	}},
	{"put a finalizer on its slice", func(ctx context.Context, s *fixture) error {
		sl := slice("east", web)
		sl.Finalizers = []string{"evil.example/hold"}
		return s.east.Create(ctx, sl)
	}},
}

var onAggregates = []attack{
	{"claim two clusterset IPs of one family", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.Spec.ClusterSetIPs = []string{"243.0.0.66", "243.0.0.67"}
		return s.east.Create(ctx, r)
	}},
	{"claim a clusterset IP in another form", func(ctx context.Context, s *fixture) error {
		r := record("east", web)
		r.Spec.ClusterSetIPs = []string{"::ffff:243.0.64.1"}
		return s.east.Create(ctx, r)
	}},
	{"change what west claims", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, record("west", cart), func(r *v1alpha1.ExportRecord) { r.Spec.ClusterSetIPs = []string{"243.0.0.66"} })
	}},
	{"show two clusterset IPs of one family", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, aggregate("east", types.NamespacedName{Namespace: "shop", Name: "new"}, "243.0.0.66", "243.0.0.67"))
	}},
	{"write an aggregate in west's name", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, aggregate("west", types.NamespacedName{Namespace: "shop", Name: "new"}, "243.0.64.66"))
	}},
	{"write an aggregate without a writer", func(ctx context.Context, s *fixture) error {
		si := aggregate("", types.NamespacedName{Namespace: "shop", Name: "new"}, "243.0.64.66")
		delete(si.Labels, v1alpha1.LabelWrittenBy)
		return s.east.Create(ctx, si)
	}},
	{"write an aggregate of kube-system",
		func(ctx context.Context, s *fixture) error { return s.east.Create(ctx, aggregate("east", system)) }},
	{"name an aggregate for another service", func(ctx context.Context, s *fixture) error {
		si := aggregate("east", types.NamespacedName{Namespace: "shop", Name: "new"})
		si.Name = "other.shop"
		return s.east.Create(ctx, si)
	}},
	{"delete an aggregate others export", func(ctx context.Context, s *fixture) error { return s.east.Delete(ctx, aggregate("", cart)) }},
	{"remove west from the exporters of an aggregate, to delete it then", func(ctx context.Context, s *fixture) error {
		si := aggregate("", cart)
		if err := s.east.Get(ctx, client.ObjectKeyFromObject(si), si); err != nil {
			return err
		}
		si.Status.Clusters = nil
		return s.east.Status().Update(ctx, si)
	}},
	{"put a finalizer on an aggregate", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, aggregate("", cart), func(si *mcsv1beta1.ServiceImport) {
			label(si, v1alpha1.LabelWrittenBy, "east")
			si.Finalizers = []string{"evil.example/hold"}
		})
	}},
	{"put an owner on an aggregate", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, aggregate("", cart), func(si *mcsv1beta1.ServiceImport) {
			label(si, v1alpha1.LabelWrittenBy, "east")
			si.OwnerReferences = owner
		})
	}},
}

var onMembership = []attack{
	{"steal west's lease", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, &coordinationv1.Lease{ObjectMeta: named("west")},
			func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("east") })
	}},
	{"delete west's lease", func(ctx context.Context, s *fixture) error {
		return s.east.Delete(ctx, &coordinationv1.Lease{ObjectMeta: named("west")})
	}},
	{"delete its own lease", func(ctx context.Context, s *fixture) error {
		return s.east.Delete(ctx, &coordinationv1.Lease{ObjectMeta: named("east")})
	}},
	{"create a lease for a future member", func(ctx context.Context, s *fixture) error {
		l := &coordinationv1.Lease{ObjectMeta: named("north")}
		l.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: "east"}
		return s.east.Create(ctx, l)
	}},
	{"give its lease to west", func(ctx context.Context, s *fixture) error {
		return change(ctx, s.east, &coordinationv1.Lease{ObjectMeta: named("east")},
			func(l *coordinationv1.Lease) { label(l, mcsv1beta1.LabelSourceCluster, "west") })
	}},
	{"widen its own block", func(ctx context.Context, s *fixture) error {
		return s.east.Patch(ctx, &v1alpha1.Cluster{ObjectMeta: named("east")},
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"clusterSetIPBlocks":["243.0.0.0/8"]}}`)))
	}},
	{"allow itself a namespace by way of its status", func(ctx context.Context, s *fixture) error {
		err := s.narrow.SubResource("status").Patch(ctx, &v1alpha1.Cluster{ObjectMeta: named("narrow")},
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"allowedNamespaces":["private"]}}`)))
		if err != nil {
			return err
		}
		return s.narrow.Create(ctx, record("narrow", private)) // the spec must not have changed
	}},
	{"write west's status", func(ctx context.Context, s *fixture) error {
		return s.east.SubResource("status").Patch(ctx, &v1alpha1.Cluster{ObjectMeta: named("west")},
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"agentVersion":"evil"}}`)))
	}},
	{"publish beacons for west", func(ctx context.Context, s *fixture) error {
		return patchBeacons(ctx, s.east, "west", 9446, 1)
	}},
	{"publish more beacons than members may", func(ctx context.Context, s *fixture) error {
		return patchBeacons(ctx, s.east, "east", 9446, 2*objects.MaxBeacons+1)
	}},
	{"publish beacons at a reserved port", func(ctx context.Context, s *fixture) error {
		return patchBeacons(ctx, s.east, "east", 53, 1)
	}},
	{"register a cluster", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &v1alpha1.Cluster{ObjectMeta: named("evil")})
	}},
	{"remove west", func(ctx context.Context, s *fixture) error {
		return s.east.Delete(ctx, &v1alpha1.Cluster{ObjectMeta: named("west")})
	}},
	{"change the clusterset", func(ctx context.Context, s *fixture) error {
		return s.east.Patch(ctx, &v1alpha1.ClusterSet{ObjectMeta: named("clusterset")},
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"staleEndpoints":"Remove"}}`)))
	}},
	{"delete the clusterset", func(ctx context.Context, s *fixture) error {
		return s.east.Delete(ctx, &v1alpha1.ClusterSet{ObjectMeta: named("clusterset")})
	}},
}

var onCluster = []attack{
	{"raise the shares of members", func(ctx context.Context, s *fixture) error {
		level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: memberLevel}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"limited":{"nominalConcurrencyShares":1000}}}`))
		return s.east.Patch(ctx, level, patch)
	}},
	{"be exempt from fairness", func(ctx context.Context, s *fixture) error {
		return s.east.Delete(ctx, &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: memberLevel}})
	}},
	{"read a secret", func(ctx context.Context, s *fixture) error {
		return s.east.Get(ctx, client.ObjectKeyFromObject(&corev1.Secret{ObjectMeta: named("victim")}), &corev1.Secret{})
	}},
	{"list secrets", func(ctx context.Context, s *fixture) error {
		return s.east.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))
	}},
	{"list all secrets of the cluster", func(ctx context.Context, s *fixture) error { return s.east.List(ctx, &corev1.SecretList{}) }},
	{"watch secrets", func(ctx context.Context, s *fixture) error {
		w, err := s.east.Watch(ctx, &corev1.SecretList{}, client.InNamespace(namespace))
		if err == nil {
			w.Stop()
		}
		return err
	}},
	{"create a secret that yields west's token", func(ctx context.Context, s *fixture) error {
		secret := &corev1.Secret{ObjectMeta: named("stolen-token"), Type: corev1.SecretTypeServiceAccountToken}
		secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: objects.MemberAccount("west")}
		return s.east.Create(ctx, secret)
	}},
	{"read a configmap", func(ctx context.Context, s *fixture) error {
		return s.east.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace))
	}},
	{"create a configmap", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("x")})
	}},
	{"create an event", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &corev1.Event{ObjectMeta: named("x"), InvolvedObject: corev1.ObjectReference{Namespace: namespace}})
	}},
	{"create a service", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &corev1.Service{ObjectMeta: named("x"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	}},
	{"create a pod that runs as west", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &corev1.Pod{ObjectMeta: named("x"), Spec: corev1.PodSpec{
			ServiceAccountName: objects.MemberAccount("west"), Containers: []corev1.Container{{Name: "x", Image: "x"}},
		}})
	}},
	{"list namespaces", func(ctx context.Context, s *fixture) error { return s.east.List(ctx, &corev1.NamespaceList{}) }},
	{"list leases of the whole cluster", func(ctx context.Context, s *fixture) error { return s.east.List(ctx, &coordinationv1.LeaseList{}) }},
}

// mint requests a token of a member for that long, with other changes to the request.
func mint(ctx context.Context, c client.Client, id string, lifetime time.Duration, change ...func(*authenticationv1.TokenRequestSpec)) error {
	request := &authenticationv1.TokenRequest{}
	request.Spec.ExpirationSeconds = ptr.To(int64(lifetime.Seconds()))
	for _, c := range change {
		c(&request.Spec)
	}
	account := &corev1.ServiceAccount{ObjectMeta: named(objects.MemberAccount(id))}
	return c.SubResource("token").Create(ctx, account, request)
}

const year = 365 * 24 * time.Hour

var byEscalation = []attack{
	{"get a token for a year", func(ctx context.Context, s *fixture) error { return mint(ctx, s.east, "east", year) }},
	{"get a token for a second more than an agent does",
		func(ctx context.Context, s *fixture) error {
			return mint(ctx, s.east, "east", member.TokenLifetime+time.Second)
		}},
	{"get west's token for a year", func(ctx context.Context, s *fixture) error { return mint(ctx, s.east, "west", year) }},
	{"get a token for another audience", func(ctx context.Context, s *fixture) error {
		return mint(ctx, s.east, "east", time.Hour, func(spec *authenticationv1.TokenRequestSpec) { spec.Audiences = []string{"vault"} })
	}},
	{"get a token that is bound to a secret", func(ctx context.Context, s *fixture) error {
		return mint(ctx, s.east, "east", time.Hour, func(spec *authenticationv1.TokenRequestSpec) {
			spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "victim"}
		})
	}},
	{"get west's token", func(ctx context.Context, s *fixture) error { return token(ctx, s.east, "west") }},
	{"list the members' accounts", func(ctx context.Context, s *fixture) error {
		return s.east.List(ctx, &corev1.ServiceAccountList{}, client.InNamespace(namespace))
	}},
	{"create an account that is a member by name", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(objects.MemberAccount("evil"))})
	}},
	{"bind itself to admin", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: named("evil"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: objects.MemberAccount("east")}},
		})
	}},
	{"widen the members' role", func(ctx context.Context, s *fixture) error {
		return s.east.Patch(ctx, &rbacv1.Role{ObjectMeta: named(brokeradmin.MemberRole)},
			client.RawPatch(types.MergePatchType, []byte(`{"rules":[]}`)))
	}},
	{"create a role", func(ctx context.Context, s *fixture) error {
		return s.east.Create(ctx, &rbacv1.Role{ObjectMeta: named("evil")})
	}},
	{"impersonate west", func(ctx context.Context, s *fixture) error {
		return impersonating(ctx, s,
			rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + objects.MemberAccount("west")})
	}},
	{"impersonate the masters", func(ctx context.Context, s *fixture) error {
		return impersonating(ctx, s, rest.ImpersonationConfig{UserName: "admin", Groups: []string{"system:masters"}})
	}},
	{"delete the policies", func(ctx context.Context, s *fixture) error { return deletePolicies(ctx, s.east) }},
	{"delete the CRDs", func(ctx context.Context, s *fixture) error { return deleteKinds(ctx, s.east) }},
	{"delete the broker's namespace", func(ctx context.Context, s *fixture) error {
		return s.east.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}},
}

func impersonating(ctx context.Context, s *fixture, user rest.ImpersonationConfig) error {
	config := rest.CopyConfig(s.config)
	config.Impersonate = user
	// With the attacker's REST mapper, so that the first request is the attack and not discovery.
	c, err := client.New(config, client.Options{Scheme: s.east.Scheme(), Mapper: s.east.RESTMapper()})
	if err != nil {
		return err
	}
	err = c.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))
	if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "impersonate") {
		return fmt.Errorf("denied for another reason: %s", err.Error())
	}
	return err
}
