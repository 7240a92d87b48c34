package chart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// requests records which verbs a client used on which resources, and which requests were denied.
type requests struct {
	mu     sync.Mutex
	used   map[string]bool // "verb group/resource"
	denied []string
}

// resourcePath matches group, resource, name and subresource in the path of a request.
var resourcePath = regexp.MustCompile(`^/(?:api/v1|apis/([^/]+)/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?$`)

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if err == nil {
			r.record(req, response.StatusCode)
		}
		return response, err
	})
}

func (r *requests) record(req *http.Request, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status == http.StatusForbidden {
		r.denied = append(r.denied, req.Method+" "+req.URL.Path)
	}
	path := req.URL.Path
	if match := regexp.MustCompile(`^/api/v1/namespaces(/[^/]+)?$`).FindStringSubmatch(path); match != nil {
		r.used[verb(req, match[1])+" /namespaces"] = true
		return
	}
	if match := resourcePath.FindStringSubmatch(path); match != nil {
		resource := match[2]
		if match[4] != "" {
			resource += "/" + match[4]
		}
		r.used[verb(req, match[3])+" "+match[1]+"/"+resource] = true
	}
}

// snapshot returns copies, because an agent may still send events after it has stopped.
func (r *requests) snapshot() (used map[string]bool, denied []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.used), slices.Clone(r.denied)
}

func verb(req *http.Request, name string) string {
	switch {
	case req.Method == http.MethodGet && req.URL.Query().Get("watch") != "":
		return "watch"
	case req.Method == http.MethodGet && name == "":
		return "list"
	}
	return map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[req.Method]
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// as returns a configuration with a token of one of the chart's ServiceAccounts. Its requests are
// recorded.
func (b *fixture) as(cluster, account string) (*rest.Config, *requests) {
	b.t.Helper()
	request := &authenticationv1.TokenRequest{}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: chart.Namespace, Name: account}}
	if err := b.client(cluster).SubResource("token").Create(b.t.Context(), owner, request); err != nil {
		b.t.Fatalf("a token for %s: %v", account, err)
	}
	config := rest.AnonymousClientConfig(b.planes[cluster].Config())
	config.BearerToken = request.Status.Token
	recorded := &requests{used: map[string]bool{}}
	config.Wrap(recorded.wrap)
	return config, recorded
}

// runAgent runs the agent with the permissions of its ServiceAccount, until the end of the test or
// until stopped.
func (b *fixture) runAgent(cluster string) (*requests, func()) {
	b.t.Helper()
	config, recorded := b.as(cluster, "seamark-agent")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			LeaderElection: true, CreateNamespaces: true,
			Options:    daemon.Options{Local: config, Log: logr.Discard(), MetricsAddress: "0", ProbeAddress: "0"},
			RenewEvery: time.Second, LeaseDuration: 5 * time.Second,
		})
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the agent of %s: %v", cluster, err)
		}
	})
	b.t.Cleanup(stop)
	return recorded, stop
}

// The agent's permissions are sufficient for its work, and it uses all of them.
func TestAgentWorksWithItsRole(t *testing.T) {
	b := newFixture(t, "east", "west")
	b.must("broker deploy --context east")
	for _, name := range []string{"east", "west"} {
		b.join(name, "east", "--create-namespaces --no-dns")
	}
	requestsEast, stopEast := b.runAgent("east")
	requestsWest, stopWest := b.runAgent("west")
	b.namespace("east", "shop")
	svc := fleet.NewService("shop", "web")
	b.create("east", svc, fleet.NewSlice(svc, "abc", "10.1.2.3"),
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	west := b.client("west")
	derived := types.NamespacedName{Namespace: "shop", Name: objects.DerivedServiceName("web")}
	harness.Eventually(t, "the service is imported into a namespace that the agent creates", func() error {
		si := &mcsv1beta1.ServiceImport{}
		if err := west.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, si); err != nil {
			return err
		}
		if len(si.Status.Clusters) != 1 || len(si.Spec.IPs) == 0 {
			return fmt.Errorf("it has clusters %v and IPs %v", si.Status.Clusters, si.Spec.IPs)
		}
		return west.Get(t.Context(), derived, &corev1.Service{})
	})
	harness.Eventually(t, "the key of the beacons is in the chart's Secret", func() error {
		secret := get(b, "west", chart.Namespace, objects.BeaconSecret, &corev1.Secret{})
		if len(secret.Data[wire.KeyFile]) != wire.KeySize || string(secret.Data[wire.ClusterIDFile]) != "west" {
			return fmt.Errorf("it has %d keys", len(secret.Data))
		}
		return nil
	})
	changeManaged(t, b)
	movePod(t, b, "web-abc")
	stopEast() // while east exports: only then its lease concerns west
	awaitStored(t, b, 1)
	requestsAgain, stopEast := b.runAgent("east")
	awaitStored(t, b, 0)
	if err := b.client("east").Delete(t.Context(),
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the service is gone", func() error {
		err := west.Get(t.Context(), derived, &corev1.Service{})
		if err == nil {
			return errors.New("the derived Service still exists")
		}
		return client.IgnoreNotFound(err)
	})
	stopEast()
	stopWest()
	used := map[string]bool{}
	for _, r := range []*requests{requestsEast, requestsAgain, requestsWest} {
		usedByOne, denied := r.snapshot()
		maps.Copy(used, usedByOne)
		if len(denied) > 0 {
			t.Errorf("the agent was denied: %s", strings.Join(slices.Compact(denied), ", "))
		}
	}
	checkAllUsed(t, b, used)
}

// awaitStored waits until the agent of west has stored that this number of members is stale.
func awaitStored(t *testing.T, b *fixture, want int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d stale members are stored", want), func() error {
		stored := &corev1.ConfigMap{}
		key := types.NamespacedName{Namespace: chart.Namespace, Name: objects.LivenessConfigMap}
		if err := b.client("west").Get(t.Context(), key, stored); err != nil {
			return err
		}
		if len(stored.Data) != want {
			return fmt.Errorf("there are %v", stored.Data)
		}
		return nil
	})
}

// changeManaged changes objects that the agents manage. The agents need permissions to restore
// them.
func changeManaged(t *testing.T, b *fixture) {
	t.Helper()
	west := b.client("west")
	harness.Eventually(t, "a changed import is restored", func() error {
		si := &mcsv1beta1.ServiceImport{}
		if err := west.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, si); err != nil {
			return err
		}
		if si.Labels["seamark.dev/changed"] == "" {
			si.Labels["seamark.dev/changed"] = "yes"
			if err := west.Update(t.Context(), si); err != nil {
				return err
			}
		}
		return client.IgnoreNotFound(checkRestored(west, t, si))
	})
	east := b.client("east")
	svc := &corev1.Service{}
	harness.Eventually(t, "a new port reaches the derived Service", func() error {
		if err := east.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, svc); err != nil {
			return err
		}
		if len(svc.Spec.Ports) == 1 {
			svc.Spec.Ports = append(svc.Spec.Ports, fleet.Port("more", 81))
			if err := east.Update(t.Context(), svc); err != nil {
				return err
			}
		}
		derived := &corev1.Service{}
		key := types.NamespacedName{Namespace: "shop", Name: objects.DerivedServiceName("web")}
		if err := west.Get(t.Context(), key, derived); err != nil {
			return err
		}
		if len(derived.Spec.Ports) != 2 {
			return fmt.Errorf("it has %d ports", len(derived.Spec.Ports))
		}
		return nil
	})
}

// movePod changes the address of the service's pod and waits until the other cluster has imported
// it.
func movePod(t *testing.T, b *fixture, name string) {
	t.Helper()
	east, west := b.client("east"), b.client("west")
	harness.Eventually(t, "a pod that moved is imported", func() error {
		slice := &discoveryv1.EndpointSlice{}
		if err := east.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, slice); err != nil {
			return err
		}
		if slice.Endpoints[0].Addresses[0] != "10.1.2.4" {
			slice.Endpoints[0].Addresses[0] = "10.1.2.4"
			if err := east.Update(t.Context(), slice); err != nil {
				return err
			}
		}
		var imported discoveryv1.EndpointSliceList
		if err := west.List(t.Context(), &imported, client.InNamespace("shop"),
			client.MatchingLabels{mcsv1beta1.LabelSourceCluster: "east"}); err != nil {
			return err
		}
		for _, s := range imported.Items {
			if len(s.Endpoints) == 1 && s.Endpoints[0].Addresses[0] == "10.1.2.4" {
				return nil
			}
		}
		return fmt.Errorf("the other cluster has %d slices, none with the new address", len(imported.Items))
	})
}

// checkRestored returns an error while the label that the test added is still on an import.
func checkRestored(c client.Client, t *testing.T, si *mcsv1beta1.ServiceImport) error {
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(si), si); err != nil {
		return err
	}
	if si.Labels["seamark.dev/changed"] != "" {
		return fmt.Errorf("the label is still set")
	}
	return nil
}

// checkAllUsed fails for each verb in the agent's roles that no request used. get is allowed beside
// list, because it gives no more access. list is allowed beside watch: an API server that cannot
// stream lists needs both.
func checkAllUsed(t *testing.T, b *fixture, used map[string]bool) {
	t.Helper()
	// Too rare for this test: policies guard the identity, its claim is deleted when the admin
	// removes the cluster, a token is renewed after hours, and events are seldom repeated.
	rare := []string{
		"create about.k8s.io/clusterproperties", "update about.k8s.io/clusterproperties", "create multicluster.k8s.io/clusterclaims",
		"update multicluster.k8s.io/clusterclaims", "delete about.k8s.io/clusterproperties",
		"delete multicluster.k8s.io/clusterclaims", "update /secrets", "create events.k8s.io/events",
		"patch events.k8s.io/events", "patch /events",
	}
	cluster := get(b, "west", "", "seamark-agent", &rbacv1.ClusterRole{})
	own := get(b, "west", chart.Namespace, "seamark-agent", &rbacv1.Role{})
	for _, rule := range append(cluster.Rules, own.Rules...) {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				permission := verb + " " + rule.APIGroups[0] + "/" + resource
				if verb == "get" && slices.Contains(rule.Verbs, "list") {
					continue
				}
				if verb == "list" && used["watch"+strings.TrimPrefix(permission, "list")] {
					continue
				}
				if !used[permission] && !slices.Contains(rare, permission) {
					t.Errorf("the agent may %s but never did", permission)
				}
			}
		}
	}
}

// Users with the default roles of a namespace may export, and only the agent may write imports.
func TestUserRoles(t *testing.T) {
	b := newFixture(t, "east")
	b.must("broker deploy --context east")
	b.join("east", "east", "--no-dns")
	b.namespace("east", "shop")
	for _, role := range []string{"view", "edit", "admin"} {
		b.create("east", &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role + "er"}},
		})
	}
	export := func() client.Object {
		return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	}
	imported := func() client.Object {
		return &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
		}
	}
	for _, test := range []struct {
		user   string
		writes bool
	}{{"viewer", false}, {"editer", true}, {"adminer", true}} {
		config := rest.CopyConfig(b.planes["east"].Config())
		config.Impersonate.UserName = test.user
		c, err := brokeradmin.NewClient(config)
		if err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, test.user+" reads exports and imports", func() error { // the roles are aggregated with a delay
			if err := c.List(t.Context(), &mcsv1beta1.ServiceExportList{}, client.InNamespace("shop")); err != nil {
				return err
			}
			return c.List(t.Context(), &mcsv1beta1.ServiceImportList{}, client.InNamespace("shop"))
		})
		if test.writes {
			harness.Eventually(t, test.user+" may export", func() error { return c.Create(t.Context(), export(), client.DryRunAll) })
		} else if err := c.Create(t.Context(), export(), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s exports: %v", test.user, err)
		}
		if err := c.Create(t.Context(), imported(), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s writes an import: %v", test.user, err)
		}
	}
}
