package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// edit is a change that a user makes to an object that the agents own.
type edit struct {
	name string
	do   func(ctx context.Context, c client.Client, obj client.Object) error
}

func deleteObject(ctx context.Context, c client.Client, obj client.Object) error {
	return c.Delete(ctx, obj)
}

// editObject changes an object's spec or metadata.
func editObject[T client.Object](change func(T)) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		change(obj.(T))
		return c.Update(ctx, obj)
	}
}

// editStatus changes an object's status.
func editStatus[T client.Object](change func(T)) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		change(obj.(T))
		return c.Status().Update(ctx, obj)
	}
}

var importEdits = []edit{
	{"deleted", deleteObject},
	{"spec", editObject(func(si *mcsv1beta1.ServiceImport) { si.Spec.Ports[0].Port, si.Spec.IPs = 81, []string{"10.66.0.1"} })},
	{"labels", editObject(func(si *mcsv1beta1.ServiceImport) { si.Labels = map[string]string{"team": "edited"} })},
	{"annotations", editObject(func(si *mcsv1beta1.ServiceImport) { si.Annotations = map[string]string{"note": "edited"} })},
	{"status", editStatus(func(si *mcsv1beta1.ServiceImport) {
		si.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "mars"}}
		si.Status.Conditions[0].Status, si.Status.Conditions[0].Message = metav1.ConditionFalse, "edited"
	})},
}

var aggregateEdits = []edit{
	{"deleted", deleteObject},
	{"spec", editObject(func(si *mcsv1beta1.ServiceImport) { si.Spec.Ports[0].Port = 81 })},
	{"labels", editObject(func(si *mcsv1beta1.ServiceImport) { si.Labels = nil })},
	{"annotations", editObject(func(si *mcsv1beta1.ServiceImport) { si.Annotations = nil })},
	{"status", editStatus(func(si *mcsv1beta1.ServiceImport) { si.Status.Clusters = nil })},
}

var sliceEdits = []edit{
	{"deleted", deleteObject},
	{"endpoints", editObject(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.66.0.1" })},
	{"ports", editObject(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To[int32](6666) })},
	{"source cluster", editObject(func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelSourceCluster] = "mars" })},
	{"service name", editObject(func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelServiceName] = "other" })},
	{"manager", editObject(func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "user" })},
	{"all labels", editObject(func(s *discoveryv1.EndpointSlice) { s.Labels = nil })},
	{"owner", editObject(func(s *discoveryv1.EndpointSlice) {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: "1-2-3"}}
	})},
}

var recordEdits = []edit{
	{"deleted", deleteObject},
	{"spec", editObject(func(r *v1alpha1.ExportRecord) { r.Spec.Ports[0].Port = 81 })},
}

var brokerSliceEdits = []edit{
	{"deleted", deleteObject},
	{"endpoints", editObject(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.66.0.1" })},
	{"ports", editObject(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To[int32](6666) })},
	{"manager", editObject(func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "user" })},
}

// The agents revert all edits of objects that they own: those of users in members, and those of the
// broker's admin on the broker.
func TestEditsAreReverted(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web", func(e *mcsv1beta1.ServiceExport) {
		e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"team": "shop"}, map[string]string{"note": "hello"}
	})
	east.AwaitExported(t, ns, "web")
	si := west.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}})
	awaitOnBroker(t, f, ns, 3)
	items, err := west.ImportedSlices(ns, "web")
	must(t, err)
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	on := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: name}
	}
	for _, owned := range []struct {
		name  string
		c     client.Client
		obj   client.Object
		edits []edit
	}{
		{"import", west.Client, si, importEdits},
		{"imported slice", west.Client, &items[0], sliceEdits},
		{"aggregate", f.Admin, &mcsv1beta1.ServiceImport{ObjectMeta: on(objects.AggregateName(service))}, aggregateEdits},
		{"record", f.Admin, &v1alpha1.ExportRecord{ObjectMeta: on(objects.RecordName(service, "east"))}, recordEdits},
		{"broker slice", f.Admin, &discoveryv1.EndpointSlice{ObjectMeta: on(objects.SliceName(service, "east", "web-abc"))}, brokerSliceEdits},
	} {
		t.Run(owned.name, func(t *testing.T) {
			for _, e := range owned.edits {
				t.Run(e.name, func(t *testing.T) { checkReverted(t, owned.c, owned.obj, e) })
			}
		})
	}
	// After all edits there are the same objects as before, and the agents write nothing more.
	awaitImports(t, west, ns, map[string]sources{"web": {"east": {"10.1.0.1"}}})
	awaitOnBroker(t, f, ns, 3)
	east.AwaitExported(t, ns, "web")
	awaitNoWrites(t, east.CP, west.CP)
}

// Labels and annotations that other controllers put on an import or on its derived Service stay.
// The agent removes its own keys only: those of its domain, and those that are exported no more,
// also if that happened while it did not run.
func TestLabelsOfOtherControllersStay(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web", func(e *mcsv1beta1.ServiceExport) {
		e.Spec.ExportedLabels = map[string]string{"team": "shop", "tier": "web"}
		e.Spec.ExportedAnnotations = map[string]string{
			"note": "hello", "service.kubernetes.io/topology-mode": "Auto",
			"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8", // refused on a Service of this type
		}
	})
	derived := objects.DerivedServiceName("web")
	has := func(step, keys string) {
		t.Helper()
		for name, obj := range map[string]client.Object{"web": &mcsv1beta1.ServiceImport{}, derived: &corev1.Service{}} {
			harness.Eventually(t, fmt.Sprintf("%s: labels and annotations of %T", step, obj), func() error {
				if err := west.Client.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: name}, obj); err != nil {
					return err
				}
				var got []string
				for _, key := range []string{"argo", "team", "tier", "note", "service.kubernetes.io/topology-mode", "seamark.dev/edited"} {
					if obj.GetLabels()[key]+obj.GetAnnotations()[key] != "" {
						got = append(got, key)
					}
				}
				if strings.Join(got, " ") != keys {
					return fmt.Errorf("they are %s, want %s", got, keys)
				}
				return nil
			})
		}
	}
	has("imported", "team tier note service.kubernetes.io/topology-mode")
	mark := func(obj client.Object) {
		obj.SetLabels(withKey(obj.GetLabels(), "argo"))
		obj.SetAnnotations(withKey(withKey(obj.GetAnnotations(), "argo"), "seamark.dev/edited"))
	}
	fleet.Update(t, west, ns, "web", &mcsv1beta1.ServiceImport{}, func(si *mcsv1beta1.ServiceImport) { mark(si) })
	fleet.Update(t, west, ns, derived, &corev1.Service{}, func(svc *corev1.Service) { mark(svc) })
	has("marked", "argo team tier note service.kubernetes.io/topology-mode")

	west.Stop()
	t.Cleanup(func() { west.Stop(); start(t, west) })
	fleet.Update(t, east, ns, "web", &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) {
		e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"team": "shop"}, nil
	})
	start(t, west)
	has("exported less", "argo team")
	awaitNoWrites(t, west.CP)
	has("at rest", "argo team")
}

func withKey(m map[string]string, key string) map[string]string {
	out := map[string]string{key: "1"}
	maps.Copy(out, m)
	return out
}

// A member must not write objects that are not labelled as its own. So when the broker's admin
// changes that label of a member's object, the member cannot revert it. It reports that on the
// export, and publishes the object again once the admin has deleted it.
func TestRelabelledOnTheBroker(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	serve(t, east, ns, "web", "10.1.0.1")
	west.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}})
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	on := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: name}
	}
	for _, obj := range []client.Object{
		&v1alpha1.ExportRecord{ObjectMeta: on(objects.RecordName(service, "east"))},
		&discoveryv1.EndpointSlice{ObjectMeta: on(objects.SliceName(service, "east", "web-abc"))},
	} {
		east.AwaitExported(t, ns, "web")
		must(t, f.Admin.Get(context.Background(), client.ObjectKeyFromObject(obj), obj))
		obj.GetLabels()[mcsv1beta1.LabelSourceCluster] = "mars"
		must(t, f.Admin.Update(context.Background(), obj))
		awaitNotReady(t, east, ns, "web", v1alpha1.ServiceExportReasonRefusedByBroker, "refused", obj.GetName(), "mars")
		must(t, f.Admin.Delete(context.Background(), obj))
		east.AwaitExported(t, ns, "web")
		west.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}})
	}
	awaitOnBroker(t, f, ns, 3)
}

// checkReverted edits an object and waits until it is as it was before.
func checkReverted(t *testing.T, c client.Client, obj client.Object, e edit) {
	t.Helper()
	ctx := context.Background()
	key := client.ObjectKeyFromObject(obj)
	before := obj.DeepCopyObject().(client.Object)
	// The agent may still be writing because of the previous edit.
	must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		return errors.Join(c.Get(ctx, key, before), e.do(ctx, c, before.DeepCopyObject().(client.Object)))
	}))
	harness.Eventually(t, fmt.Sprintf("%T %s is reverted", obj, key), func() error {
		after := obj.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, key, after); err != nil {
			return err
		}
		if a, b := withoutServerFields(before), withoutServerFields(after); !equality.Semantic.DeepEqual(a, b) {
			return fmt.Errorf("it is %+v\nwant %+v", b, a)
		}
		return nil
	})
}

// withoutServerFields returns a copy of an object without the fields that the API server sets.
func withoutServerFields(obj client.Object) client.Object {
	out := obj.DeepCopyObject().(client.Object)
	out.SetUID("")
	out.SetResourceVersion("")
	out.SetGeneration(0)
	out.SetCreationTimestamp(metav1.Time{})
	out.SetManagedFields(nil)
	if si, ok := out.(*mcsv1beta1.ServiceImport); ok {
		for i := range si.Status.Conditions {
			si.Status.Conditions[i].LastTransitionTime, si.Status.Conditions[i].ObservedGeneration = metav1.Time{}, 0
		}
	}
	return out
}

// The agent restores the objects of a cluster's identity, if admission allows their deletion at
// all, and the ranges of the clusterset that it publishes.
func TestIdentityIsRestored(t *testing.T) {
	f := clusterset(t)
	west := f.Members[1]
	set := &v1alpha1.ClusterSet{}
	key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: brokeradmin.DefaultClusterSet}
	must(t, f.Admin.Get(context.Background(), key, set))
	for _, obj := range append(objects.Identity(membershipOf(t, west)), objects.RangesProperty(set.Spec.ClusterSetIP.Ranges)) {
		want := objects.IdentityValue(obj)
		harness.Eventually(t, obj.GetName()+" is published", func() error {
			return west.Client.Get(context.Background(), client.ObjectKeyFromObject(obj), emptyLike(obj))
		})
		err := west.Client.Delete(context.Background(), obj)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Fatalf("delete %T %s: %v", obj, obj.GetName(), err)
		}
		t.Logf("%T %s: deletion refused: %t", obj, obj.GetName(), err != nil)
		harness.Eventually(t, fmt.Sprintf("%T %s is restored", obj, obj.GetName()), func() error {
			have := emptyLike(obj)
			if err := west.Client.Get(context.Background(), client.ObjectKeyFromObject(obj), have); err != nil {
				return err
			}
			if got := objects.IdentityValue(have); got != want {
				return fmt.Errorf("its value is %q, want %q", got, want)
			}
			return nil
		})
	}
}

// emptyLike returns an empty object of the same kind.
func emptyLike(obj client.Object) client.Object {
	if _, ok := obj.(*claimsv1.ClusterClaim); ok {
		return &claimsv1.ClusterClaim{}
	}
	return &aboutv1beta1.ClusterProperty{}
}

// unchangedObjects returns a check that these objects have not been written since it was called.
func unchangedObjects(t *testing.T, c client.Client, objs ...client.Object) func() error {
	t.Helper()
	versions := make([]string, len(objs))
	for i, obj := range objs {
		must(t, c.Get(context.Background(), client.ObjectKeyFromObject(obj), obj))
		versions[i] = obj.GetResourceVersion()
	}
	return func() error {
		for i, obj := range objs {
			if err := c.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			if obj.GetResourceVersion() != versions[i] {
				return fmt.Errorf("%T %s was written", obj, obj.GetName())
			}
		}
		return nil
	}
}

// foreignSlice returns an EndpointSlice that another controller made for a service of the
// clusterset.
func foreignSlice(ns, service string) *discoveryv1.EndpointSlice {
	slice := fleet.NewSlice(fleet.NewService(ns, service), "foreign", "10.5.0.1")
	slice.Labels = map[string]string{mcsv1beta1.LabelServiceName: service, discoveryv1.LabelManagedBy: "another-controller"}
	return slice
}

// The agent leaves objects of other controllers alone: slices of the service that it imports into
// the same namespace, and a ServiceImport that no cluster exports a service for, although one
// exports a service of that name from another namespace. Importing, restarting and unexporting do
// not change them.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	notExported := foreignImport(ns, "not-exported")
	collidingSlice, otherSlice := foreignSlice(ns, "web"), foreignSlice(ns, "not-exported")
	west.Create(t, notExported, collidingSlice, otherSlice)
	unchanged := unchangedObjects(t, west.Client, notExported, collidingSlice, otherSlice)

	serve(t, east, ns, "web", "10.1.0.1")
	// The slice of the other controller has no source cluster.
	both := sources{"": {"10.5.0.1"}, "east": {"10.1.0.1"}}
	harness.Eventually(t, "web is imported beside the foreign slice", func() error { return west.CheckAddresses(ns, "web", both) })
	elsewhere := fleet.NewNamespace(t, f.Members...)
	serve(t, east, elsewhere, "not-exported", "10.1.0.2")
	west.AwaitImport(t, elsewhere, "not-exported", sources{"east": {"10.1.0.2"}})
	harness.Consistently(t, "foreign objects do not change", time.Second, unchanged)
	west.Stop()
	start(t, west)
	harness.Consistently(t, "foreign objects do not change after a restart", 3*time.Second, unchanged)

	east.Unexport(t, ns, "web")
	harness.Eventually(t, "only the foreign slice is left", func() error {
		if _, err := west.Import(ns, "web"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ServiceImport still exists (%w)", err)
		}
		return west.CheckAddresses(ns, "web", sources{"": {"10.5.0.1"}})
	})
	must(t, unchanged())
}

func foreignImport(ns, name string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{{Port: 99}}},
	}
}

// A ServiceImport that a user created is overwritten once a cluster exports the service: the MCS
// API says that the implementation manages the ServiceImports of exported services.
func TestForeignImportOfAnExportedServiceIsOverwritten(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	foreign := foreignImport(ns, "web")
	west.Create(t, foreign)
	harness.Consistently(t, "it does not change before the export", time.Second, unchangedObjects(t, west.Client, foreign))
	serve(t, east, ns, "web", "10.1.0.1")
	si := west.AwaitImport(t, ns, "web", sources{"east": {"10.1.0.1"}})
	if si.UID != foreign.UID || si.Spec.Type != mcsv1beta1.ClusterSetIP || !objects.IsManagedImport(si) {
		t.Errorf("got %+v, want the same object with the spec of the exported service", si)
	}
	east.Unexport(t, ns, "web")
	west.AwaitNoImport(t, ns, "web")
}
