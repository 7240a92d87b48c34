package watch

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
)

func slice(namespace, name, service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: "1", Labels: map[string]string{discoveryv1.LabelServiceName: service},
	}}
}

func sliceNames(t *testing.T, c *Cache, opts ...client.ListOption) string {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	if err := c.List(t.Context(), &list, opts...); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return strings.Join(names, " ")
}

func filled(t *testing.T, changed func(client.Object), objs ...client.Object) (*Cache, *store) {
	t.Helper()
	c := New(nil, brokeradmin.NewScheme(), changed)
	if err := c.Hold(&discoveryv1.EndpointSlice{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Fill(&discoveryv1.EndpointSlice{}, objs); err != nil {
		t.Fatal(err)
	}
	return c, &store{c, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")}
}

func TestCacheAnswersLikeAnAPIServer(t *testing.T) {
	c, into := filled(t, nil, slice("shop", "web-2", "web"), slice("shop", "web-1", "web"), slice("shop", "db-1", "db"),
		slice("other", "web-1", "web"))
	web := client.MatchingLabels{discoveryv1.LabelServiceName: "web"}
	if got := sliceNames(t, c); got != "other/web-1 shop/db-1 shop/web-1 shop/web-2" {
		t.Errorf("all: %s", got)
	}
	if got := sliceNames(t, c, client.InNamespace("shop"), web); got != "shop/web-1 shop/web-2" {
		t.Errorf("of a service: %s", got)
	}
	if got := sliceNames(t, c, web); got != "other/web-1 shop/web-1 shop/web-2" {
		t.Errorf("in all namespaces: %s", got)
	}
	if got := sliceNames(t, c, client.InNamespace("shop"), client.MatchingLabels{mcsv1beta1.LabelServiceName: "web"}); got != "" {
		t.Errorf("with another label: %s", got)
	}
	moved := slice("shop", "web-1", "db")
	if err := into.Update(moved); err != nil {
		t.Fatal(err)
	}
	if err := into.Delete(slice("shop", "db-1", "db")); err != nil {
		t.Fatal(err)
	}
	if got := sliceNames(t, c, client.InNamespace("shop"), web); got != "shop/web-2" {
		t.Errorf("after a change: %s", got)
	}
	if got := sliceNames(t, c, client.InNamespace("shop"), client.MatchingLabels{discoveryv1.LabelServiceName: "db"}); got != "shop/web-1" {
		t.Errorf("after a change: %s", got)
	}
	got := &discoveryv1.EndpointSlice{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-2"}, got); err != nil || got.Name != "web-2" {
		t.Errorf("%v %+v", err, got)
	}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "none"}, got); !apierrors.IsNotFound(err) {
		t.Errorf("an object that does not exist: %v", err)
	}
}

// A kind that is refused fails as it does at the API server; one that was not read yet fails too,
// and is not taken for empty.
func TestKindsThatCannotBeRead(t *testing.T) {
	c, into := filled(t, nil)
	into.refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", nil))
	if err := c.List(t.Context(), &discoveryv1.EndpointSliceList{}); !apierrors.IsForbidden(err) {
		t.Errorf("forbidden: %v", err)
	}
	if err := c.Hold(&corev1.Service{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "x"}, &corev1.Service{}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("not read yet: %v", err)
	}
	if got := c.unsynced(); !cmp.Equal(got, []string{"Service"}) {
		t.Errorf("%v", got)
	}
	if err := c.List(t.Context(), &corev1.PodList{}); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not held, without an API server: %v", err)
	}
}

func TestChangesAreAnnounced(t *testing.T) {
	var changed []string
	c, into := filled(t, func(obj client.Object) { changed = append(changed, obj.GetName()) }, slice("shop", "a", "web"), slice("shop", "b", "web"))
	if len(changed) != 2 {
		t.Errorf("%v", changed)
	}
	changed = nil
	newer := slice("shop", "b", "web")
	newer.ResourceVersion = "2"
	if err := into.Replace([]any{newer, slice("shop", "a", "web"), slice("shop", "c", "web")}, ""); err != nil {
		t.Fatal(err)
	}
	if len(changed) != 2 || !strings.Contains(strings.Join(changed, ""), "b") || !strings.Contains(strings.Join(changed, ""), "c") {
		t.Errorf("an unchanged object is announced: %v", changed)
	}
	changed = nil
	if err := into.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if len(changed) != 3 || sliceNames(t, c) != "" {
		t.Errorf("deleted: %v", changed)
	}
}

func TestTrim(t *testing.T) {
	early, late := metav1.NewTime(time.Unix(10, 0)), metav1.NewTime(time.Unix(20, 0))
	s := slice("shop", "web-1", "web")
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "a", Time: &late}, {Manager: "b", Time: &early}}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "keep": "me"}
	s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Zone: ptr.To("a"), NodeName: ptr.To("n1")}}
	trim(s)
	if len(s.ManagedFields) != 1 || !s.ManagedFields[0].Time.Equal(&late) || s.ManagedFields[0].Manager != "" {
		t.Errorf("%+v", s.ManagedFields)
	}
	if len(s.Annotations) != 1 || s.Endpoints[0].NodeName != nil || s.Endpoints[0].Zone == nil {
		t.Errorf("%+v", s)
	}
	member := &v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Beacons: &v1alpha1.Beacons{Key: []byte("secret")}}}
	trim(member)
	if member.Status.Beacons.Key != nil {
		t.Error("the key of beacons is kept")
	}
}

func TestGuardRefusesWrites(t *testing.T) {
	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent++ }))
	t.Cleanup(server.Close)
	const own = "/api/v1/namespaces/seamark-system"
	all := Questions{Forward: true, Token: true}
	for _, test := range []struct {
		method, path string
		allowed      Questions
		want         bool
	}{
		{http.MethodGet, "/api/v1/pods", Questions{}, true},
		{http.MethodPost, "/api/v1/namespaces/shop/services", all, false},
		{http.MethodPut, own + "/configmaps/x", all, false},
		{http.MethodPatch, own + "/configmaps/x", all, false},
		{http.MethodDelete, own + "/pods/x", all, false},
		{http.MethodPost, own + "/pods", all, false},
		{http.MethodPost, own + "/pods/seamark-dns-1/portforward", Questions{}, false},
		{http.MethodPost, own + "/pods/seamark-dns-1/portforward", all, true},
		{http.MethodPost, "/behind/a/path" + own + "/pods/seamark-dns-1/portforward", all, true},
		{http.MethodPost, own + "/pods/seamark-dns-1/exec", all, false},
		{http.MethodPost, own + "/pods/x/../../services", all, false},
		{http.MethodPost, "/api/v1/namespaces/shop/pods/web/portforward", all, false},
		{http.MethodPost, own + "/serviceaccounts/seamark-metrics/token", Questions{}, false},
		{http.MethodPost, own + "/serviceaccounts/seamark-metrics/token", all, true},
		{http.MethodPost, own + "/serviceaccounts/seamark-agent/token", all, false},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", all, false},
	} {
		config := Guard(&rest.Config{Host: server.URL}, test.allowed)
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), test.method, server.URL+test.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		before := sent
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != test.want || (sent > before) != test.want {
			t.Errorf("%s %s: %v, sent %v", test.method, test.path, err, sent > before)
		}
	}
}
