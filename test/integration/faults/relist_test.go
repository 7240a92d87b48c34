package faults_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

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
	f := fleet.Started(t, cps[0], cps, fleet.Options{RenewEvery: time.Second, LeaseDuration: outageLease})
	west, east := f.Members[0], f.Members[1]
	const others = 150
	inParallel(t, others, func(i int) { must(t, f.Admin.Create(t.Context(), otherCluster(i))) })
	lists := &clusterLists{}
	east.Agent.WrapBroker = lists.wrap
	link := ownLink(t, f, east)
	ns := fleet.NewNamespace(t, f.Members...)
	serve(t, west, ns, "web", "10.1.0.1")
	serve(t, east, ns, "web", "10.2.0.1")
	both := sources{west.ID: {"10.1.0.1"}, east.ID: {"10.2.0.1"}}
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
		must(t, cps[0].StopAPIServer())
		must(t, cps[0].StartAPIServer(t.Context()))
		change()
		link.restore()
	}
	awayWhile(func() {
		changeCluster(t, f, west.ID, grant("elsewhere"))
		must(t, f.Admin.Delete(t.Context(), otherCluster(0)))
		must(t, f.Admin.Create(t.Context(), otherCluster(others)))
	})
	lists.await(t, "two Clusters that changed are read by name", func(l listed) bool { return l.byName >= 2 })
	east.AwaitImport(t, ns, "web", sources{east.ID: {"10.2.0.1"}})
	// The own Cluster may have changed, too, and a list that failed was sent again.
	if got := lists.take(); got.all > 0 || got.byName > 3*got.versions {
		t.Errorf("after two Clusters changed the lists are %+v, want one of versions and two by name", got)
	}
	changeCluster(t, f, west.ID, grant(ns)) // arrives by the watch that began at the version of the list
	east.AwaitImport(t, ns, "web", both)
	lists.take()

	awayWhile(func() {
		changeCluster(t, f, west.ID, grant("elsewhere"))
		for i := range 10 {
			changeCluster(t, f, otherCluster(i+1).Name, grant("elsewhere"))
		}
	})
	lists.await(t, "all Clusters are listed after eleven changed", func(l listed) bool { return l.all > 0 })
	east.AwaitImport(t, ns, "web", sources{east.ID: {"10.2.0.1"}})
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
