package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// An error is logged if it is new for its service, and every failed reconcile is retried.
func TestErrorsAreLoggedOnce(t *testing.T) {
	var lines []string
	ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	var err error
	failing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, err
	})
	instrumented := &InstrumentedReconciler{Name: "import", Metrics: New(), Reconciler: failing}
	for i, step := range []struct {
		service, fails string
		logged         bool
	}{
		{"web", "unreachable", true}, {"web", "unreachable", false}, {"db", "unreachable", true},
		{"web", "refused", true}, {"web", "", false}, {"web", "refused", true},
	} {
		lines, err = nil, nil
		if step.fails != "" {
			err = errors.New(step.fails)
		}
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: step.service}}
		result, returned := instrumented.Reconcile(ctx, request)
		if returned != nil || result.Requeue != (step.fails != "") { //nolint:staticcheck // see Reconcile
			t.Errorf("step %d: %+v, %v", i, result, returned)
		}
		if logged := len(lines) == 1 && strings.Contains(lines[0], step.fails); logged != step.logged || len(lines) > 1 {
			t.Errorf("step %d (%s: %q): logged %q", i, step.service, step.fails, lines)
		}
	}
}
