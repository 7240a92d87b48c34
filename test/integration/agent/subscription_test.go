package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/subscription"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// An agent holds only what belongs to namespaces of its cluster. A service of another namespace is
// imported as soon as the namespace is created, and what the agent holds of it goes with the
// namespace.
func TestAgentHoldsWhatConcernsIt(t *testing.T) {
	f, address := withNamespaceController(t)
	east, west := f.Members[0], f.Members[1]
	both := fleet.NewNamespace(t, east, west)
	other := fleet.NewNamespace(t, east)
	for _, ns := range []string{both, other} {
		for i := range 3 {
			name := fmt.Sprintf("svc-%d", i)
			east.Serve(t, fleet.NewService(ns, name), fmt.Sprintf("10.1.0.%d", i+1))
			east.Export(t, ns, name)
			east.AwaitExported(t, ns, name)
		}
	}
	west.AwaitImport(t, both, "svc-2", map[string][]string{"east": {"10.1.0.3"}})
	awaitHeld(t, address, 3)

	west.Namespace(t, other)
	for i := range 3 {
		west.AwaitImport(t, other, fmt.Sprintf("svc-%d", i), map[string][]string{"east": {fmt.Sprintf("10.1.0.%d", i+1)}})
	}
	awaitHeld(t, address, 6)

	deleteNamespace(t, west, other)
	awaitHeld(t, address, 3)
	west.AwaitImport(t, both, "svc-0", map[string][]string{"east": {"10.1.0.1"}})
}

func awaitHeld(t *testing.T, address string, want float64) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("the agent holds %v services of the broker", want), func() error {
		text := scrape(t, address)
		for _, kind := range []string{"ExportRecord", "EndpointSlice", "ServiceImport"} {
			if got, ok := seriesValue(text, fmt.Sprintf(`seamark_broker_objects{kind=%q}`, kind)); !ok || got != want {
				return fmt.Errorf("it holds %v objects of kind %s (found: %t)", got, kind, ok)
			}
		}
		return nil
	})
}

// A clusterset IP of this cluster's block stays in use although the cluster does not have the
// service's namespace any more, and its agent restarts: another cluster still exports the service.
func TestAddressesOfOtherNamespacesStayInUse(t *testing.T) {
	cps := harness.Fresh(t, 2, harness.WithControllerManager)
	f := fleet.Started(t, cps[0], cps, fleet.Options{
		Blocks: map[string][]netip.Prefix{"west": {netip.MustParsePrefix("243.9.0.0/30"), netip.MustParsePrefix("fd00:243::9:0/126")}},
	})
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east, west)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	west.AwaitExported(t, ns, "web")
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	imported := east.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}})
	ip := imported.Annotations[v1alpha1.AnnotationClusterSetIPs]
	if !strings.Contains(ip, "243.9.0.") {
		t.Fatalf("the service has the clusterset IPs %q, want one of 243.9.0.0/30", ip)
	}
	deleteNamespace(t, west, ns)
	east.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	// With another port east writes the aggregate, and nothing of west's is left of the service.
	fleet.Update(t, east, ns, "web", &corev1.Service{}, func(svc *corev1.Service) {
		svc.Spec.Ports = append(svc.Spec.Ports, fleet.Port("admin", 9000))
	})
	service := types.NamespacedName{Namespace: ns, Name: "web"}
	harness.Eventually(t, "east has written the aggregate", func() error {
		si := &mcsv1beta1.ServiceImport{}
		key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: objects.AggregateName(service)}
		if err := f.Admin.Get(t.Context(), key, si); err != nil {
			return err
		}
		if by := si.Labels[v1alpha1.LabelWrittenBy]; by != "east" {
			return fmt.Errorf("cluster %s has", by)
		}
		return nil
	})
	west.Stop()
	if err := west.Start(); err != nil {
		t.Fatal(err)
	}
	// The block has two addresses, of which one is in use: one more service gets one, the second none.
	mine := fleet.NewNamespace(t, west)
	for _, name := range []string{"a", "b"} {
		west.Serve(t, fleet.NewService(mine, name), "10.2.0.2")
		west.Export(t, mine, name)
	}
	harness.Eventually(t, "one of two services has the address that is left, and it is not that of the first", func() error {
		var records v1alpha1.ExportRecordList
		if err := f.Admin.List(t.Context(), &records, client.MatchingLabels{v1alpha1.LabelServiceNamespace: mine}); err != nil {
			return err
		}
		var claimed []string
		for _, r := range records.Items {
			for _, addr := range objects.ParseAddresses(r.Spec.ClusterSetIPs) {
				if addr.Is4() {
					claimed = append(claimed, addr.String())
				}
			}
		}
		if len(records.Items) != 2 || len(claimed) != 1 || strings.Contains(ip, claimed[0]) {
			return fmt.Errorf("%d records claim %v; the first service has %s", len(records.Items), claimed, ip)
		}
		return nil
	})
}

// What an informer with a subscription holds equals what the server has of the namespaces, however
// they come and go while objects change. It lists the objects of a namespace that comes, and no
// others, and never goes back to an older state of an object.
func TestSubscriptionFollowsNamespaces(t *testing.T) {
	cp := harness.Clusters(t, 1)[0]
	in := harness.Namespace(t, cp)
	requests := &listRequests{}
	config := rest.CopyConfig(cp.Config())
	config.QPS = -1
	config.Wrap(requests.wrap)
	api := kubernetes.NewForConfigOrDie(config).DiscoveryV1().EndpointSlices(in)
	namespaces := subscription.NewNamespaces()
	informer := subscription.NewInformer(&toolscache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return api.Watch(ctx, o) },
	}, in, namespaces, func(lw toolscache.ListerWatcher) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(lw, &discoveryv1.EndpointSlice{}, 0, toolscache.Indexers{})
	})
	versions := &versionsSeen{of: map[string]int64{}}
	if _, err := informer.AddEventHandler(versions.handler(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { informer.RunWithContext(ctx) })

	names := []string{"a", "b", "c", "d", "e"}
	write := func(namespace string, i int, weight string) {
		t.Helper()
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", namespace, i), Labels: map[string]string{v1alpha1.LabelServiceNamespace: namespace},
			Annotations: map[string]string{v1alpha1.AnnotationWeight: weight},
		}}
		if _, err := api.Update(ctx, slice, metav1.UpdateOptions{}); err == nil {
			return
		}
		if _, err := api.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range names {
		for i := range 20 {
			write(namespace, i, "1")
		}
	}
	namespaces.Add("a")
	namespaces.SetKnown()
	awaitSame(t, informer, api.List, "a")
	requests.reset()
	namespaces.Add("b")
	awaitSame(t, informer, api.List, "a", "b")
	if got := requests.selectors(); !slices.Equal(got, []string{v1alpha1.LabelServiceNamespace + " in (b)"}) {
		t.Errorf("one namespace came, and the lists were %q", got)
	}

	random := rand.New(rand.NewPCG(1, 2))
	exists := map[string]bool{"a": true, "b": true}
	toggle := func(namespace string) {
		if exists[namespace] = !exists[namespace]; exists[namespace] {
			namespaces.Add(namespace)
			return
		}
		namespaces.Delete(namespace)
		namespaces.Release(namespace)
	}
	for round := range 60 {
		for range 5 {
			namespace, i := names[random.IntN(len(names))], random.IntN(20)
			if random.IntN(4) > 0 {
				write(namespace, i, fmt.Sprint(round+2))
			} else if err := api.Delete(ctx, fmt.Sprintf("%s-%d", namespace, i), metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
		toggle(names[random.IntN(len(names))])
	}
	existing := func() []string {
		return slices.DeleteFunc(slices.Clone(names), func(namespace string) bool { return !exists[namespace] })
	}
	awaitSame(t, informer, api.List, existing()...)
	for _, selector := range requests.selectors() {
		if selector == "" {
			t.Errorf("a list had no selector: %q", requests.selectors())
		}
	}

	// More namespaces than a selector can name: the informer holds the same, and follows them.
	for i := range 200 {
		toggle(fmt.Sprintf("%s-%d", strings.Repeat("long", 12), i))
	}
	for round := range 20 {
		namespace := names[random.IntN(len(names))]
		toggle(namespace)
		write(namespace, random.IntN(20), fmt.Sprint(100+round))
	}
	awaitSame(t, informer, api.List, existing()...)
	for i := range 200 {
		toggle(fmt.Sprintf("%s-%d", strings.Repeat("long", 12), i))
	}
	awaitSame(t, informer, api.List, existing()...)
}

// awaitSame waits until an informer holds what the server has of some namespaces.
func awaitSame(
	t *testing.T, informer toolscache.SharedIndexInformer,
	list func(context.Context, metav1.ListOptions) (*discoveryv1.EndpointSliceList, error), namespaces ...string,
) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("the informer holds the objects of %v", namespaces), func() error {
		all, err := list(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var want, got []string
		for i := range all.Items {
			if s := &all.Items[i]; slices.Contains(namespaces, s.Labels[v1alpha1.LabelServiceNamespace]) {
				want = append(want, s.Name+"@"+s.ResourceVersion)
			}
		}
		for _, held := range informer.GetStore().List() {
			s := held.(*discoveryv1.EndpointSlice)
			got = append(got, s.Name+"@"+s.ResourceVersion)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			return fmt.Errorf("it holds %v, want %v", got, want)
		}
		return nil
	})
}

// versionsSeen checks that no object goes back to an older state.
type versionsSeen struct {
	mu sync.Mutex
	of map[string]int64
}

func (v *versionsSeen) handler(t *testing.T) toolscache.ResourceEventHandler {
	observe := func(obj any) {
		s := obj.(*discoveryv1.EndpointSlice)
		version := objects.ResourceVersion(s)
		v.mu.Lock()
		defer v.mu.Unlock()
		if version < v.of[s.Name] {
			t.Errorf("%s went from version %d back to %d", s.Name, v.of[s.Name], version)
		}
		v.of[s.Name] = version
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: observe, UpdateFunc: func(_, obj any) { observe(obj) }}
}

// listRequests records the label selectors of list requests.
type listRequests struct {
	mu  sync.Mutex
	all []string
}

func (l *listRequests) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
}

func (l *listRequests) selectors() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *listRequests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		query := req.URL.Query()
		if req.Method == http.MethodGet && query.Get("watch") == "" && query.Get("limit") != "" {
			l.mu.Lock()
			l.all = append(l.all, query.Get("labelSelector"))
			l.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
