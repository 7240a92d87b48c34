// Package exporters counts what many exporters of one service write to the broker. It runs the
// reconcilers of the aggregate against a real API server with the broker's policies. Each has the
// identity of its member; all share one cache, so that a test has room for hundreds of them.
package exporters

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/aggregate"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const namespace = objects.DefaultNamespace

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// broker is a broker with many members.
type broker struct {
	config *rest.Config
	admin  client.Client
	cache  cache.Cache
	ids    []string

	writes, failed atomic.Int64 // requests of members that reached the API server

	// reconciling bounds how many members compute at a time: hundreds would leave no CPU time to the
	// API server. It does not bound their requests, of which hundreds may be under way: with a bound,
	// few of them could conflict, whatever the members do.
	reconciling chan struct{}
}

func newBroker(t *testing.T, members int) *broker {
	t.Helper()
	config := rest.CopyConfig(harness.Fresh(t, 1)[0].DirectConfig())
	config.QPS = -1
	admin, err := brokeradmin.NewClient(config)
	must(t, err)
	_, err = brokeradmin.Deploy(t.Context(), admin, brokeradmin.DeployOptions{})
	must(t, err)
	b := &broker{config: config, admin: admin, reconciling: make(chan struct{}, 4)}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all-members"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: brokeradmin.MemberRole},
	}
	for i := range members {
		id := fmt.Sprintf("member-%03d", i)
		b.ids = append(b.ids, id)
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{
			Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: objects.MemberAccount(id),
		})
	}
	must(t, admin.Create(t.Context(), binding))
	b.forAll(t, func(id string) error {
		return admin.Create(t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}})
	})
	b.startCache(t)
	return b
}

// forAll calls f for all members, several at a time.
func (b *broker) forAll(t *testing.T, f func(id string) error) {
	t.Helper()
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, id := range b.ids {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := f(id); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func (b *broker) startCache(t *testing.T) {
	t.Helper()
	var err error
	b.cache, err = cache.New(b.config, cache.Options{
		Scheme: b.admin.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultUnsafeDisableDeepCopy: ptr.To(true),
	})
	must(t, err)
	must(t, index.AddBroker(t.Context(), index.Indexer{Cache: b.cache, AllNamespaces: true}))
	for _, kind := range []client.Object{&v1alpha1.ExportRecord{}, &mcsv1beta1.ServiceImport{}} {
		_, err := b.cache.GetInformer(t.Context(), kind, cache.BlockUntilSynced(false))
		must(t, err)
	}
	b.run(t, b.cache.Start)
	if !b.cache.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not sync")
	}
}

// run runs a task until the end of the test.
func (b *broker) run(t *testing.T, task func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := task(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// clientOf returns a client that reads from the cache and writes as a member. Its writes are
// counted.
func (b *broker) clientOf(t *testing.T, id string) client.Client {
	t.Helper()
	config := rest.CopyConfig(b.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + objects.MemberAccount(id),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next, b} })
	c, err := client.New(config, client.Options{
		Scheme: b.admin.Scheme(), Mapper: b.admin.RESTMapper(), Cache: &client.CacheOptions{Reader: b.cache},
	})
	must(t, err)
	return c
}

// begin waits until a member may compute, and returns what ends that.
func (b *broker) begin() (end func()) {
	b.reconciling <- struct{}{}
	return func() { <-b.reconciling }
}

// counter counts the requests of members, which they make while they reconcile.
type counter struct {
	next   http.RoundTripper
	broker *broker
}

// RoundTrip implements http.RoundTripper.
func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		c.broker.writes.Add(1)
	}
	<-c.broker.reconciling // others compute while this member waits for the answer
	resp, err := c.next.RoundTrip(req)
	c.broker.reconciling <- struct{}{}
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		c.broker.failed.Add(1)
	}
	return resp, err
}

// start starts the reconciler of a member, with the same watches as its agent has.
func (b *broker) start(t *testing.T, id string) {
	t.Helper()
	c := b.clientOf(t, id)
	cluster := &v1alpha1.Cluster{}
	deferred := trigger.NewDeferred(&trigger.Burst{})
	r := &aggregate.Reconciler{
		ClusterID: id, BrokerNamespace: namespace, Broker: c, Direct: b.admin, Writer: apply.NewWriter(c), Deferred: deferred,
		Connected: func() bool { return true }, Taken: func() error { return nil },
		Stale: func() map[string]bool { return nil }, Demoted: func() map[string]bool { return nil },
		ClusterOf: func(string) *v1alpha1.Cluster { return cluster },
		Accepts: func(context.Context, types.NamespacedName) func(netip.Addr) bool {
			return func(netip.Addr) bool { return true }
		},
		BlockOwner: func(netip.Addr) string { return "" },
	}
	run, err := controller.NewUnmanaged("aggregate-"+id, controller.Options{
		Reconciler: reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			defer b.begin()()
			return r.Reconcile(ctx, req)
		}),
		SkipNameValidation: ptr.To(true),
		RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 15*time.Second),
		LogConstructor:     func(*reconcile.Request) logr.Logger { return logr.Discard() },
	})
	must(t, err)
	for _, s := range []source.Source{
		trigger.Watch(b.cache, &v1alpha1.ExportRecord{}, keysOf[*v1alpha1.ExportRecord]),
		trigger.WatchWith(b.cache, &mcsv1beta1.ServiceImport{}, keysOf[*mcsv1beta1.ServiceImport], aggregate.Hooks(id)),
		deferred.Source(),
	} {
		must(t, run.Watch(s))
	}
	b.run(t, run.Start)
}

func keysOf[T client.Object](obj T) []types.NamespacedName {
	if service, ok := objects.ServiceOf(obj); ok {
		return []types.NamespacedName{service}
	}
	return nil
}

func record(id string) *v1alpha1.ExportRecord {
	return &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.RecordName(web, id), Labels: objects.Labels(web, id)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: web.Name, ServiceNamespace: web.Namespace, ClusterID: v1alpha1.ClusterID(id), ExportedAt: metav1.Now().Rfc3339Copy(),
			Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, UseClusterSetIP: true, RequestedClusterSetIP: true,
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

// counted returns how many writes members have made since the last call, and how many failed.
func (b *broker) counted() (writes, failed int64) { return b.writes.Swap(0), b.failed.Swap(0) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
