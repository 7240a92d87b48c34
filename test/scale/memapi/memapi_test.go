package memapi_test

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/memapi"
)

func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	server := memapi.New("test", netip.MustParsePrefix("172.24.0.0/16"))
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk, scope := range memapi.Kinds() {
		mapper.Add(gvk, scope)
	}
	c, err := client.NewWithWatch(server.Config(), client.Options{Scheme: harness.Scheme(), Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Writes behave as on an API server: versions, conflicts, unchanged objects, the status apart.
func TestWrites(t *testing.T) {
	c, ctx := newClient(t), context.Background()
	svc := fleet.NewService("shop", "web")
	must(t, c.Create(ctx, svc))
	if svc.Spec.ClusterIP != "172.24.0.1" || svc.UID == "" || svc.Generation != 1 {
		t.Errorf("created %+v", svc)
	}
	if err := c.Create(ctx, fleet.NewService("shop", "web")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it twice: %v", err)
	}
	before := svc.DeepCopy()
	must(t, c.Update(ctx, svc))
	if svc.ResourceVersion != before.ResourceVersion {
		t.Error("an unchanged object got another version")
	}
	svc.Spec.Ports[0].Port = 81
	must(t, c.Update(ctx, svc))
	if svc.Generation != 2 {
		t.Errorf("generation %d after a change", svc.Generation)
	}
	if err := c.Update(ctx, before); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	must(t, c.Create(ctx, export))
	export.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionTrue, Reason: "Valid"}}
	must(t, c.Status().Update(ctx, export))
	export.Status.Conditions = nil
	export.Labels = map[string]string{"a": "b"}
	must(t, c.Update(ctx, export))
	if len(export.Status.Conditions) != 1 || export.Generation != 1 {
		t.Errorf("an update changed the status: %+v", export)
	}
	must(t, c.Delete(ctx, svc))
	if err := c.Get(ctx, client.ObjectKeyFromObject(svc), svc); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted object: %v", err)
	}
}

// Lists and watches follow their selectors, and what a deleted object owned goes with it.
func TestWatchAndGarbage(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	svc := fleet.NewService("shop", "web")
	must(t, c.Create(ctx, svc))
	events, err := c.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace("shop"), client.MatchingLabels{"mine": "yes"})
	must(t, err)
	defer events.Stop()
	expect := func(want watch.EventType) {
		t.Helper()
		if got := <-events.ResultChan(); got.Type != want {
			t.Errorf("%s, want %s: %v", got.Type, want, got.Object)
		}
	}
	owned := fleet.NewSlice(svc, "a", "10.0.0.1")
	owned.Labels["mine"] = "yes"
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}}
	must(t, c.Create(ctx, owned))
	expect(watch.Added)
	must(t, c.Create(ctx, fleet.NewSlice(svc, "b", "10.0.0.2"))) // not selected
	owned.Labels["mine"] = "no"
	must(t, c.Update(ctx, owned))
	expect(watch.Deleted)
	owned.Labels["mine"] = "yes"
	must(t, c.Update(ctx, owned))
	expect(watch.Added)
	must(t, c.Delete(ctx, svc))
	expect(watch.Deleted)
	left := &discoveryv1.EndpointSliceList{}
	must(t, c.List(ctx, left))
	if len(left.Items) != 1 {
		t.Errorf("%d slices are left", len(left.Items))
	}
	if err := c.List(ctx, &corev1.PodList{}); err != nil {
		t.Error(err)
	}
}
