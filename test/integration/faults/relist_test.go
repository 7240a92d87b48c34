package faults_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// clusterLists counts how an agent lists the Clusters of the broker.
type clusterLists struct {
	mu sync.Mutex
	listed
}

// listed are lists of all Clusters, of the versions of all, and of one by its name.
type listed struct{ all, versions, byName int }

// wrap returns a transport that counts what it sends by next.
func (l *clusterLists) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		l.count(req)
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func (l *clusterLists) count(req *http.Request) {
	query := req.URL.Query()
	if !strings.HasSuffix(req.URL.Path, "/clusters") || query.Has("watch") || query.Get("limit") == "1" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case query.Has("fieldSelector"):
		l.byName++
	case strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadataList"):
		l.versions++
	default:
		l.all++
	}
}

// take returns what was counted since it was called last.
func (l *clusterLists) take() listed {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.listed = listed{} }()
	return l.listed
}

// await waits until what was counted is enough.
func (l *clusterLists) await(t *testing.T, what string, enough func(listed) bool) {
	t.Helper()
	harness.Eventually(t, what, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !enough(l.listed) {
			return fmt.Errorf("the lists are %+v", l.listed)
		}
		return nil
	})
}

// A member that finds a broker again which has forgotten where its watch was reads the versions of
// all Clusters, and those that changed by name; all of them if many did. What the admin changed
// meanwhile holds in both cases.
func TestReturningMemberReadsChangedClusters(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 2)
	f := fleet.Started(t, cps[0], cps[1:], fleet.Options{})
	east := f.Members[0]
	const others = 70 // one of them and the own one may change, and both are read by name
	inParallel(t, others, func(i int) { must(t, f.Admin.Create(t.Context(), otherCluster(i))) })
	exporter := otherCluster(1).Name
	lists := &clusterLists{}
	east.Agent.WrapBroker = lists.wrap
	link := ownLink(t, f, east)
	ns := fleet.NewNamespace(t, f.Members...)
	serve(t, east, ns, "web", "10.2.0.1")
	east.AwaitExported(t, ns, "web")
	publish(t, f, exporter, types.NamespacedName{Namespace: ns, Name: "web"}, "10.1.0.1")
	own, both := sources{east.ID: {"10.2.0.1"}}, sources{exporter: {"10.1.0.1"}, east.ID: {"10.2.0.1"}}
	east.AwaitImport(t, ns, "web", both)
	if got := lists.take(); got.all == 0 || got.byName > 0 {
		t.Errorf("the first lists are %+v, want one of all Clusters", got)
	}

	grant := func(namespaces ...string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) { c.Spec.AllowedNamespaces = namespaces }
	}
	awayWhile := func(change func()) {
		t.Helper()
		link.cut()
		change() // before the restart: a server that starts knows no events from before
		must(t, cps[0].StopAPIServer())
		must(t, cps[0].StartAPIServer(t.Context()))
		link.restore()
	}
	awayWhile(func() {
		changeCluster(t, f, exporter, grant("elsewhere"))
		must(t, f.Admin.Delete(t.Context(), otherCluster(0)))
	})
	lists.await(t, "a Cluster that changed is read by name", func(l listed) bool { return l.byName > 0 })
	east.AwaitImport(t, ns, "web", own)
	// The own Cluster may have changed, too, and a list that failed was sent again.
	if got := lists.take(); got.all > 0 || got.byName > 2*got.versions {
		t.Errorf("after one Cluster changed the lists are %+v, want one of versions and one by name", got)
	}
	changeCluster(t, f, exporter, grant(ns)) // arrives by the watch that began at the version of the list
	east.AwaitImport(t, ns, "web", both)
	lists.take()

	awayWhile(func() {
		for i := range 10 {
			changeCluster(t, f, otherCluster(i+1).Name, grant("elsewhere"))
		}
	})
	lists.await(t, "all Clusters are listed after ten changed", func(l listed) bool { return l.all > 0 })
	east.AwaitImport(t, ns, "web", own)
}

// publish writes a record and a slice of a member that has no agent to the broker.
func publish(t *testing.T, f *fleet.Fleet, id string, service types.NamespacedName, address string) {
	t.Helper()
	meta := metav1.ObjectMeta{
		Namespace: objects.DefaultNamespace, Name: objects.RecordName(service, id), Labels: objects.Labels(service, id),
	}
	must(t, f.Admin.Create(t.Context(), &v1alpha1.ExportRecord{ObjectMeta: meta, Spec: v1alpha1.ExportRecordSpec{
		ServiceName: service.Name, ServiceNamespace: service.Namespace, ClusterID: v1alpha1.ClusterID(id),
		ExportedAt: metav1.Now(), Type: "ClusterSetIP",
		Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}, IPFamilies: []corev1.IPFamily{"IPv4"},
	}}))
	meta.Name += ".a"
	must(t, f.Admin.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}))
}

// otherCluster returns a member that has no agent.
func otherCluster(i int) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: fmt.Sprintf("other-%03d", i)}}
}

func changeCluster(t *testing.T, f *fleet.Fleet, id string, change func(*v1alpha1.Cluster)) {
	t.Helper()
	must(t, retry.OnError(retry.DefaultBackoff, func(error) bool { return true }, func() error {
		c := &v1alpha1.Cluster{}
		if err := f.Admin.Get(t.Context(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: id}, c); err != nil {
			return err
		}
		change(c)
		return f.Admin.Update(t.Context(), c)
	}))
}
