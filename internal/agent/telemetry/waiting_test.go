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

// Someone who asks why a service is not imported gets the reason for as long as it holds, and the
// metric counts each time the reconciler decided to wait.
func TestWaitingIsAnsweredAndCounted(t *testing.T) {
	metrics := New()
	reason := objects.WaitForNamespace
	reconciler := &InstrumentedReconciler{Name: "import", Metrics: metrics, Reconciler: reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		if reason != "" {
			Wait(ctx, reason)
		}
		return reconcile.Result{}, nil
	})}
	run := func(name string) {
		t.Helper()
		if _, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(query string) (int, []objects.Waiting) {
		t.Helper()
		answer := httptest.NewRecorder()
		metrics.Waiting.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, objects.WaitingPath+query, nil))
		var waiting []objects.Waiting
		if answer.Code == http.StatusOK {
			if err := json.Unmarshal(answer.Body.Bytes(), &waiting); err != nil {
				t.Fatal(err)
			}
		}
		return answer.Code, waiting
	}
	run("web")
	run("web")
	_, first := ask("?service=shop/web")
	if len(first) != 1 || first[0].Reconciler != "import" || first[0].Reason != objects.WaitForNamespace || first[0].Since.IsZero() {
		t.Fatalf("waiting: %+v", first)
	}
	if count := testutil.ToFloat64(metrics.Waits.WithLabelValues("import", string(objects.WaitForNamespace))); count != 2 {
		t.Errorf("counted %v waits, want 2", count)
	}
	if _, other := ask("?service=shop/db"); len(other) != 0 {
		t.Errorf("another service waits: %+v", other)
	}
	reason = ""
	run("web")
	if _, after := ask("?service=shop/web"); len(after) != 0 {
		t.Errorf("still waiting: %+v", after)
	}
	if code, _ := ask(""); code != http.StatusBadRequest {
		t.Errorf("a question without a service is answered with %d", code)
	}
}
