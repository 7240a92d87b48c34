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
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// requests notes which verbs a client used on which resources, and what it was refused.
type requests struct {
	mu      sync.Mutex
	used    map[string]bool // "verb group/resource"
	refused []string
}

// resourcePath takes a request's path apart: group, resource, name and subresource.
var resourcePath = regexp.MustCompile(`^/(?:api/v1|apis/([^/]+)/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?$`)

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if err == nil {
			r.note(req, response.StatusCode)
		}
		return response, err
	})
}

func (r *requests) note(req *http.Request, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status == http.StatusForbidden {
		r.refused = append(r.refused, req.Method+" "+req.URL.Path)
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

// sofar is what was noted; events may still be on their way after their agent ended.
func (r *requests) sofar() (used map[string]bool, refused []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.used), slices.Clone(r.refused)
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

// as is a configuration with a token of one of the chart's ServiceAccounts, whose requests are noted.
func (b *bed) as(cluster, account string) (*rest.Config, *requests) {
	b.t.Helper()
	request := &authenticationv1.TokenRequest{}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: chart.Namespace, Name: account}}
	if err := b.client(cluster).SubResource("token").Create(b.t.Context(), owner, request); err != nil {
		b.t.Fatalf("a token for %s: %v", account, err)
	}
	config := rest.AnonymousClientConfig(b.planes[cluster].Config())
	config.BearerToken = request.Status.Token
	noted := &requests{used: map[string]bool{}}
	config.Wrap(noted.wrap)
	return config, noted
}

// runAgent runs the agent with nothing but the rights of its ServiceAccount, until the end of the test or until stopped.
func (b *bed) runAgent(cluster string) (*requests, func()) {
	b.t.Helper()
	config, noted := b.as(cluster, "seamark-agent")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			LeaderElection: true, CreateNamespaces: true, Options: daemon.Options{Local: config, Log: logr.Discard(), MetricsAddress: "0", ProbeAddress: "0"},
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
	return noted, stop
}

// The agent's rights are enough for its work, and none is there that it never uses.
func TestAgentWorksWithItsRole(t *testing.T) {
	b := newBed(t, "east", "west")
	b.must("broker deploy --context east")
	for _, name := range []string{"east", "west"} {
		b.join(name, "east", "--create-namespaces --no-dns")
	}
	notedEast, stopEast := b.runAgent("east")
	notedWest, stopWest := b.runAgent("west")
	b.namespace("east", "shop")
	svc := fleet.NewService("shop", "web")
	b.create("east", svc, fleet.NewSlice(svc, "abc", "10.1.2.3"), &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	west := b.client("west")
	derived := types.NamespacedName{Namespace: "shop", Name: objects.DerivedServiceName("web")}
	harness.Eventually(t, "the service arrives in a namespace that the agent makes", func() error {
		si := &mcsv1beta1.ServiceImport{}
		if err := west.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, si); err != nil {
			return err
		}
		if len(si.Status.Clusters) != 1 || len(si.Spec.IPs) == 0 {
			return fmt.Errorf("it has clusters %v and addresses %v", si.Status.Clusters, si.Spec.IPs)
		}
		return west.Get(t.Context(), derived, &corev1.Service{})
	})
	disturb(t, b)
	moved(t, b, "web-abc")
	if err := b.client("east").Delete(t.Context(), &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the service is gone", func() error {
		err := west.Get(t.Context(), derived, &corev1.Service{})
		if err == nil {
			return errors.New("the derived Service is there")
		}
		return client.IgnoreNotFound(err)
	})
	stopEast()
	stopWest()
	used := map[string]bool{}
	for _, noted := range []*requests{notedEast, notedWest} {
		seen, refused := noted.sofar()
		maps.Copy(used, seen)
		if len(refused) > 0 {
			t.Errorf("the agent was refused: %s", strings.Join(slices.Compact(refused), ", "))
		}
	}
	checkNeeded(t, b, used)
}

// disturb makes the agents put back what somebody changes, which takes rights of its own.
func disturb(t *testing.T, b *bed) {
	t.Helper()
	west := b.client("west")
	harness.Eventually(t, "a changed import is put back", func() error {
		si := &mcsv1beta1.ServiceImport{}
		if err := west.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, si); err != nil {
			return err
		}
		if si.Labels["seamark.dev/disturbed"] == "" {
			si.Labels["seamark.dev/disturbed"] = "yes"
			if err := west.Update(t.Context(), si); err != nil {
				return err
			}
		}
		return client.IgnoreNotFound(stillDisturbed(west, t, si))
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
		if err := west.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: objects.DerivedServiceName("web")}, derived); err != nil {
			return err
		}
		if len(derived.Spec.Ports) != 2 {
			return fmt.Errorf("it has %d ports", len(derived.Spec.Ports))
		}
		return nil
	})
}

// moved makes a pod of the service move, and waits until the other cluster knows.
func moved(t *testing.T, b *bed, name string) {
	t.Helper()
	east, west := b.client("east"), b.client("west")
	harness.Eventually(t, "a pod that moved is seen", func() error {
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
		if err := west.List(t.Context(), &imported, client.InNamespace("shop"), client.MatchingLabels{mcsv1beta1.LabelSourceCluster: "east"}); err != nil {
			return err
		}
		for _, s := range imported.Items {
			if len(s.Endpoints) == 1 && s.Endpoints[0].Addresses[0] == "10.1.2.4" {
				return nil
			}
		}
		return fmt.Errorf("the other cluster has %d slices, none with it", len(imported.Items))
	})
}

// stillDisturbed tells whether the disturbing label is still on an import.
func stillDisturbed(c client.Client, t *testing.T, si *mcsv1beta1.ServiceImport) error {
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(si), si); err != nil {
		return err
	}
	if si.Labels["seamark.dev/disturbed"] != "" {
		return fmt.Errorf("the label is still there")
	}
	return nil
}

// checkNeeded fails for each verb in the agent's roles that nothing used. Who may list may as well get: that is no further right. And what
// is watched is listed too where an API server cannot stream lists.
func checkNeeded(t *testing.T, b *bed, used map[string]bool) {
	t.Helper()
	// What happens too rarely for this test: the identity is guarded by policies, a token is renewed after hours, an event is repeated.
	rare := []string{
		"create about.k8s.io/clusterproperties", "update about.k8s.io/clusterproperties", "create multicluster.k8s.io/clusterclaims",
		"update multicluster.k8s.io/clusterclaims", "update /secrets", "create events.k8s.io/events", "patch events.k8s.io/events", "patch /events",
	}
	cluster := get(b, "west", "", "seamark-agent", &rbacv1.ClusterRole{})
	own := get(b, "west", chart.Namespace, "seamark-agent", &rbacv1.Role{})
	for _, rule := range append(cluster.Rules, own.Rules...) {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				right := verb + " " + rule.APIGroups[0] + "/" + resource
				if verb == "get" && slices.Contains(rule.Verbs, "list") {
					continue
				}
				if verb == "list" && used["watch"+strings.TrimPrefix(right, "list")] {
					continue
				}
				if !used[right] && !slices.Contains(rare, right) {
					t.Errorf("the agent may %s but never did", right)
				}
			}
		}
	}
}

// People with the usual roles of a namespace may export, and nobody but the agent writes imports.
func TestUserRoles(t *testing.T) {
	b := newBed(t, "east")
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
		harness.Eventually(t, test.user+" reads exports and imports", func() error { // the roles are aggregated a moment later
			if err := c.List(t.Context(), &mcsv1beta1.ServiceExportList{}, client.InNamespace("shop")); err != nil {
				return err
			}
			return c.List(t.Context(), &mcsv1beta1.ServiceImportList{}, client.InNamespace("shop"))
		})
		if test.writes {
			harness.Eventually(t, test.user+" exports", func() error { return c.Create(t.Context(), export(), client.DryRunAll) })
		} else if err := c.Create(t.Context(), export(), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s exports: %v", test.user, err)
		}
		if err := c.Create(t.Context(), imported(), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s writes an import: %v", test.user, err)
		}
	}
}
