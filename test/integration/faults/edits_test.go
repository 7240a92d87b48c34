package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// edit is something a person does to an object that is the agents'.
type edit struct {
	name string
	do   func(ctx context.Context, c client.Client, obj client.Object) error
}

func deleted(ctx context.Context, c client.Client, obj client.Object) error {
	return c.Delete(ctx, obj)
}

// changed edits an object's spec or metadata.
func changed[T client.Object](change func(T)) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		change(obj.(T))
		return c.Update(ctx, obj)
	}
}

// changedStatus edits an object's status.
func changedStatus[T client.Object](change func(T)) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		change(obj.(T))
		return c.Status().Update(ctx, obj)
	}
}

var importEdits = []edit{
	{"deleted", deleted},
	{"spec", changed(func(si *mcsv1beta1.ServiceImport) { si.Spec.Ports[0].Port, si.Spec.IPs = 81, []string{"10.66.0.1"} })},
	{"labels", changed(func(si *mcsv1beta1.ServiceImport) { si.Labels = map[string]string{"mine": "now"} })},
	{"annotations", changed(func(si *mcsv1beta1.ServiceImport) { si.Annotations = map[string]string{"mine": "now"} })},
	{"status", changedStatus(func(si *mcsv1beta1.ServiceImport) {
		si.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "mars"}}
		si.Status.Conditions[0].Status, si.Status.Conditions[0].Message = metav1.ConditionFalse, "edited"
	})},
}

var aggregateEdits = []edit{
	{"deleted", deleted},
	{"spec", changed(func(si *mcsv1beta1.ServiceImport) { si.Spec.Ports[0].Port = 81 })},
	{"labels", changed(func(si *mcsv1beta1.ServiceImport) { si.Labels = nil })},
	{"annotations", changed(func(si *mcsv1beta1.ServiceImport) { si.Annotations = nil })},
	{"status", changedStatus(func(si *mcsv1beta1.ServiceImport) { si.Status.Clusters = nil })},
}

var sliceEdits = []edit{
	{"deleted", deleted},
	{"endpoints", changed(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.66.0.1" })},
	{"ports", changed(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To[int32](6666) })},
	{"source cluster", changed(func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelSourceCluster] = "mars" })},
	{"service name", changed(func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelServiceName] = "other" })},
	{"manager", changed(func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "me" })},
	{"all labels", changed(func(s *discoveryv1.EndpointSlice) { s.Labels = nil })},
	{"owner", changed(func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil })},
}

var recordEdits = []edit{
	{"deleted", deleted},
	{"spec", changed(func(r *v1alpha1.ExportRecord) { r.Spec.Ports[0].Port = 81 })},
}

var brokerSliceEdits = []edit{
	{"deleted", deleted},
	{"endpoints", changed(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.66.0.1" })},
	{"ports", changed(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To[int32](6666) })},
	{"manager", changed(func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "me" })},
}

// Whatever somebody does to what the agents own is put back: in members, and by the broker's admin on the broker.
func TestEditsArePutBack(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web", func(e *mcsv1beta1.ServiceExport) {
		e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"team": "shop"}, map[string]string{"note": "hello"}
	})
	exported(t, east, ns, "web")
	si := imported(t, west, ns, "web", sources{"east": {"10.1.0.1"}})
	brokerHolds(t, f, ns, 3)
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
				t.Run(e.name, func(t *testing.T) { putBack(t, owned.c, owned.obj, e) })
			}
		})
	}
	// After all that, everything is as it was, once.
	importsExactly(t, west, ns, map[string]sources{"web": {"east": {"10.1.0.1"}}})
	brokerHolds(t, f, ns, 3)
	exported(t, east, ns, "web")
	calm := quiet(t, east.CP, west.CP)
	if n := len(calm); n != 2 {
		t.Errorf("counted %d servers", n)
	}
}

// A member may not touch what is not labelled as its own. So when the broker's admin takes a label off what a member owns, the
// member cannot put it back; it says so on the export, and goes on once the admin has deleted the thing.
func TestRelabelledOnTheBroker(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	serve(t, east, ns, "web", "10.1.0.1")
	imported(t, west, ns, "web", sources{"east": {"10.1.0.1"}})
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	on := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: name}
	}
	for _, obj := range []client.Object{
		&v1alpha1.ExportRecord{ObjectMeta: on(objects.RecordName(service, "east"))},
		&discoveryv1.EndpointSlice{ObjectMeta: on(objects.SliceName(service, "east", "web-abc"))},
	} {
		exported(t, east, ns, "web")
		must(t, f.Admin.Get(context.Background(), client.ObjectKeyFromObject(obj), obj))
		obj.GetLabels()[mcsv1beta1.LabelSourceCluster] = "mars"
		must(t, f.Admin.Update(context.Background(), obj))
		c := ready(t, east, ns, "web", metav1.ConditionFalse, v1alpha1.ServiceExportReasonRefusedByBroker)
		if !strings.Contains(c.Message, "refused") || !strings.Contains(c.Message, obj.GetName()) || !strings.Contains(c.Message, "mars") {
			t.Errorf("the export says %q: want who refused what, and why", c.Message)
		}
		must(t, f.Admin.Delete(context.Background(), obj))
		exported(t, east, ns, "web")
		imported(t, west, ns, "web", sources{"east": {"10.1.0.1"}})
	}
	brokerHolds(t, f, ns, 3)
}

// putBack edits an object and waits until it is again what it was.
func putBack(t *testing.T, c client.Client, obj client.Object, e edit) {
	t.Helper()
	ctx := context.Background()
	key := client.ObjectKeyFromObject(obj)
	before := obj.DeepCopyObject().(client.Object)
	// The agent may still be at what the edit before left to do.
	must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		return errors.Join(c.Get(ctx, key, before), e.do(ctx, c, before.DeepCopyObject().(client.Object)))
	}))
	harness.Eventually(t, fmt.Sprintf("%T %s is put back", obj, key), func() error {
		after := obj.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, key, after); err != nil {
			return err
		}
		if a, b := essence(before), essence(after); !equality.Semantic.DeepEqual(a, b) {
			return fmt.Errorf("it is %+v\nwant %+v", b, a)
		}
		return nil
	})
}

// essence is an object without what the API server adds and without the identity of its owner, which may be a new one.
func essence(obj client.Object) client.Object {
	out := obj.DeepCopyObject().(client.Object)
	out.SetUID("")
	out.SetResourceVersion("")
	out.SetGeneration(0)
	out.SetCreationTimestamp(metav1.Time{})
	out.SetManagedFields(nil)
	owners := out.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = ""
	}
	out.SetOwnerReferences(owners)
	if si, ok := out.(*mcsv1beta1.ServiceImport); ok {
		for i := range si.Status.Conditions {
			si.Status.Conditions[i].LastTransitionTime, si.Status.Conditions[i].ObservedGeneration = metav1.Time{}, 0
		}
	}
	return out
}

// What says who a cluster is comes back too, as far as admission lets it be taken away at all.
func TestIdentityIsPutBack(t *testing.T) {
	f := clusterset(t)
	west := f.Members[1]
	for _, obj := range objects.Identity(membershipOf(t, west)) {
		want := objects.IdentityValue(obj)
		err := west.Client.Delete(context.Background(), obj)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Fatalf("delete %T %s: %v", obj, obj.GetName(), err)
		}
		t.Logf("%T %s: deletion refused: %t", obj, obj.GetName(), err != nil)
		harness.Eventually(t, fmt.Sprintf("%T %s is back", obj, obj.GetName()), func() error {
			have := newOf(obj)
			if err := west.Client.Get(context.Background(), client.ObjectKeyFromObject(obj), have); err != nil {
				return err
			}
			if got := objects.IdentityValue(have); got != want {
				return fmt.Errorf("it says %q, want %q", got, want)
			}
			return nil
		})
	}
}

func newOf(obj client.Object) client.Object {
	if _, ok := obj.(*claimsv1.ClusterClaim); ok {
		return &claimsv1.ClusterClaim{}
	}
	return &aboutv1beta1.ClusterProperty{}
}

// ServiceImports and slices that somebody else made are nobody's business.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	foreign := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "foreign"},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{{Port: 99}}},
	}
	slice := fleet.NewSlice(fleet.NewService(ns, "foreign"), "abc", "10.5.0.1")
	slice.Labels = map[string]string{mcsv1beta1.LabelServiceName: "foreign", discoveryv1.LabelManagedBy: "somebody"}
	west.Create(t, foreign, slice)
	unchanged := frozen(t, ns, west)
	serve(t, east, fleet.NewNamespace(t, f.Members...), "foreign", "10.1.0.1") // the same name elsewhere
	harness.Consistently(t, "they stay as they are", time.Second, unchanged)
	west.Stop()
	start(t, west)
	harness.Consistently(t, "they stay as they are after a restart", 3*time.Second, unchanged)
}
