package chart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
	uifleet "github.com/seamark-dev/seamark/internal/ui/fleet"
	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// The page of the chart sees what it shows with its own permissions, and sends nothing but reads.
func TestPageWorksWithItsRole(t *testing.T) {
	b := newFixture(t, "east")
	b.must("broker deploy --context east")
	b.join("east", "east", "--no-dns --set ui.enabled=true")
	b.runAgent("east")
	b.create("east", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	svc := fleet.NewService("shop", "web")
	b.create("east", svc, fleet.NewSlice(svc, "abc", "10.1.2.3"),
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})

	config, recorded := b.as("east", "seamark-ui")
	var mu sync.Mutex
	var now *state.Snapshot
	page := uifleet.New(uifleet.Options{
		Clusters: []uifleet.Target{{Config: config}}, BrokerNamespace: objects.DefaultNamespace,
		Publish: func(_ state.Delta, s *state.Snapshot) {
			mu.Lock()
			defer mu.Unlock()
			now = s
		},
		ProxyToken: func(context.Context) (string, error) { return config.BearerToken, nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { page.Run(ctx) })
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	// The pods of seamark-dns are not ready: no kubelet runs them here.
	trouble := func(r *state.Row) bool {
		return slices.ContainsFunc(r.Groups, func(g state.Group) bool { return g.Code != "dns-silent" })
	}
	harness.Eventually(t, "the page shows the service without other trouble, and the member", func() error {
		mu.Lock()
		defer mu.Unlock()
		if now == nil {
			return errors.New("nothing was published")
		}
		row := now.Row("shop/web")
		if row == nil || trouble(row) || !row.Cell(0).Exports || !row.Cell(0).Imports {
			return fmt.Errorf("the service is %+v; broker: %s", row, now.Broker.Problem)
		}
		if c := now.Clusters[0]; c.ID != "east" || c.State != "alive" || c.Problem != "" || c.Kubernetes == "" {
			return fmt.Errorf("the cluster is %+v", c)
		}
		return nil
	})
	page.View(types.NamespacedName{Namespace: "shop", Name: "web"})
	if report, ok := page.Explain(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}); !ok || report.Merged == nil {
		t.Errorf("%+v", report)
	}
	stop()
	used, denied := recorded.snapshot()
	if len(denied) > 0 {
		t.Errorf("the page was denied: %s", strings.Join(slices.Compact(denied), ", "))
	}
	for request := range used {
		if verb, _, _ := strings.Cut(request, " "); verb != "get" && verb != "list" && verb != "watch" {
			t.Errorf("the page sent %s", request)
		}
	}
}
