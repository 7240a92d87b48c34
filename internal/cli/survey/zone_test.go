package survey

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

// objectServer returns a cluster whose API server has only the objects, lists and answers of pods
// given by their path, and no others.
func objectServer(t *testing.T, answers map[string]any) *Cluster {
	t.Helper()
	scheme := brokeradmin.NewScheme()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer, ok := answers[req.URL.Path]
		if !ok {
			http.NotFound(w, req)
			return
		}
		if strings.HasSuffix(req.URL.Path, objects.WaitingPath) && req.URL.Query().Get(objects.ServiceParameter) != "shop/web" {
			t.Errorf("an agent is asked for %s", req.URL.RawQuery)
		}
		if obj, ok := answer.(runtime.Object); ok {
			gvks, _, err := scheme.ObjectKinds(obj)
			if err != nil {
				t.Error(err)
			}
			obj.GetObjectKind().SetGroupVersionKind(gvks[0])
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if slices.Contains([]string{"Namespace", "CustomResourceDefinition", "ServiceCIDR"}, gvk.Kind) {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	config := &rest.Config{Host: server.URL}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{Context: "east", ID: "east", ClusterSet: "clusterset", Connection: Connection{Client: c, Config: config}, clock: &serverClock{}}
}

const (
	seamarkPath = "/api/v1/namespaces/seamark-system"
	mcsPath     = "/apis/multicluster.x-k8s.io/v1beta1"
)

// otherZone returns a cluster with the zone example.internal, one import and an agent.
func otherZone(t *testing.T, waiting []objects.Waiting) *Cluster {
	imported := mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.96.0.7"}},
	}
	pod := func(name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "seamark-system", Name: name}}
	}
	return objectServer(t, map[string]any{
		"/api/v1/namespaces/shop":                                  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices": &discoveryv1.EndpointSliceList{},
		mcsPath + "/namespaces/shop/serviceimports/web":            &imported,
		mcsPath + "/serviceimports":                                &mcsv1beta1.ServiceImportList{Items: []mcsv1beta1.ServiceImport{imported}},
		mcsPath + "/serviceexports":                                &mcsv1beta1.ServiceExportList{},
		seamarkPath + "/services/seamark-dns": &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationZone: "example.internal"}},
			Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.53"}},
		},
		seamarkPath + "/pods": &corev1.PodList{Items: []corev1.Pod{pod("seamark-agent-1"), pod("seamark-agent-2"), pod("seamark-agent-3")}},
		// The second replica is the leader, the third does not answer.
		seamarkPath + "/pods/http:seamark-agent-1:9441/proxy/waiting": []objects.Waiting{},
		seamarkPath + "/pods/http:seamark-agent-2:9441/proxy/waiting": waiting,
	})
}

// A cluster whose chart has another zone is asked for names in that zone.
func TestAnotherZone(t *testing.T) {
	c := otherZone(t, nil)
	servers := Servers{"east": nameServer(t, "web.shop.svc.example.internal.", "10.96.0.7")}
	if got := Zone(t.Context(), c.Client); got != "example.internal" {
		t.Errorf("the zone is %s", got)
	}
	in := ReadService(t.Context(), []*Cluster{c}, &Broker{Problem: errors.New("away")}, types.NamespacedName{Namespace: "shop", Name: "web"}, servers)
	service := in.Clusters[0]
	if service.Problem != "" || service.Zone != "example.internal" || service.DNS == nil || service.DNS.Code != "NOERROR" {
		t.Errorf("explain: %+v, DNS %+v", service, service.DNS)
	}
	facts := c.readFacts(t.Context(), FactOptions{Servers: servers})
	if facts.Zone != "example.internal" || facts.Asked != "web.shop.svc.example.internal" || facts.Answer.Code != "NOERROR" {
		t.Errorf("doctor: zone %s, asked for %s: %+v", facts.Zone, facts.Asked, facts.Answer)
	}
	if want := "there is no ConfigMap kube-system/coredns, so this cluster's DNS is configured in another way: " +
		"make sure that it forwards example.internal to seamark-dns"; facts.CorefileProblem != want {
		t.Errorf("doctor: %s", facts.CorefileProblem)
	}
}

func TestDefaultZone(t *testing.T) {
	if got := Zone(t.Context(), objectServer(t, nil).Client); got != objects.DefaultZone {
		t.Errorf("without seamark-dns: %s", got)
	}
	old := objectServer(t, map[string]any{seamarkPath + "/services/seamark-dns": &corev1.Service{}})
	if got := Zone(t.Context(), old.Client); got != objects.DefaultZone {
		t.Errorf("without the annotation: %s", got)
	}
}

// The answers of all agents are joined; one that does not answer is left out.
func TestAskAgents(t *testing.T) {
	waiting := []objects.Waiting{
		{Reconciler: "import", Reason: objects.WaitForNamespace, Since: time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)},
	}
	got := otherZone(t, waiting).askAgents(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"})
	if diff := cmp.Diff(waiting, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
