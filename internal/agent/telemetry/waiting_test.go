package telemetry

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/seamark-dev/seamark/internal/objects"
)

// The reason why a service is not imported is served for as long as it holds, and the metric counts
// each time the reconciler decided to wait.
func TestWaitingIsServedAndCounted(t *testing.T) {
	metrics := New()
	reason := objects.WaitForNamespace
	waiting := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		if reason != "" {
			Wait(ctx, reason)
		}
		return reconcile.Result{}, nil
	})
	reconciler := &InstrumentedReconciler{Name: "import", Metrics: metrics, Reconciler: waiting}
	run := func(name string) {
		t.Helper()
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}
		if _, err := reconciler.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	query := func(parameters string) (int, []objects.Waiting) {
		t.Helper()
		response := httptest.NewRecorder()
		metrics.Waiting.ServeHTTP(response, httptest.NewRequest(http.MethodGet, objects.WaitingPath+parameters, nil))
		var waiting []objects.Waiting
		if response.Code == http.StatusOK {
			if err := json.Unmarshal(response.Body.Bytes(), &waiting); err != nil {
				t.Fatal(err)
			}
		}
		return response.Code, waiting
	}
	run("web")
	run("web")
	_, first := query("?service=shop/web")
	if len(first) != 1 || first[0].Reconciler != "import" || first[0].Reason != objects.WaitForNamespace || first[0].Since.IsZero() {
		t.Fatalf("waiting: %+v", first)
	}
	if count := testutil.ToFloat64(metrics.Waits.WithLabelValues("import", string(objects.WaitForNamespace))); count != 2 {
		t.Errorf("counted %v waits, want 2", count)
	}
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	if services := metrics.Waiting.Services("import"); len(services) != 1 || services[0] != web {
		t.Errorf("services that wait: %v", services)
	}
	if services := metrics.Waiting.Services("export"); len(services) != 0 {
		t.Errorf("another reconciler waits for %v", services)
	}
	if _, other := query("?service=shop/db"); len(other) != 0 {
		t.Errorf("another service waits: %+v", other)
	}
	reason = ""
	run("web")
	if _, after := query("?service=shop/web"); len(after) != 0 {
		t.Errorf("still waiting: %+v", after)
	}
	if services := metrics.Waiting.Services("import"); len(services) != 0 {
		t.Errorf("still waiting: %v", services)
	}
	if code, _ := query(""); code != http.StatusBadRequest {
		t.Errorf("a request without a service gets %d", code)
	}
}
