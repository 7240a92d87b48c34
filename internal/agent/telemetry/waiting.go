package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seamark-dev/seamark/internal/objects"
)

type waitKey struct{}

// Wait records that the reconciler that runs with ctx decided not to write yet, and why. The last
// call of a reconcile counts. The reason is logged at debug level, counted, and served at
// objects.WaitingPath.
func Wait(ctx context.Context, reason objects.WaitReason) {
	ctrl.LoggerFrom(ctx).V(1).Info("waiting", "reason", reason)
	if recorded, ok := ctx.Value(waitKey{}).(*objects.WaitReason); ok {
		*recorded = reason
	}
}

// WaitList holds the services that wait, by reconciler. A service that is up to date is not in it.
type WaitList struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName]map[string]objects.Waiting
}

// set records why a reconciler waits for a service; without a reason it waits no longer.
func (l *WaitList) set(service types.NamespacedName, reconciler string, reason objects.WaitReason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == "" {
		delete(l.waiting[service], reconciler)
		if len(l.waiting[service]) == 0 {
			delete(l.waiting, service)
		}
		if len(l.waiting) == 0 {
			l.waiting = nil // a map keeps the memory of all that it ever had
		}
		return
	}
	if l.waiting == nil {
		l.waiting = map[types.NamespacedName]map[string]objects.Waiting{}
	}
	if l.waiting[service] == nil {
		l.waiting[service] = map[string]objects.Waiting{}
	}
	if l.waiting[service][reconciler].Reason != reason {
		l.waiting[service][reconciler] = objects.Waiting{Reconciler: reconciler, Reason: reason, Since: time.Now()}
	}
}

// Of returns what the reconcilers wait for before they write what a service needs.
func (l *WaitList) Of(service types.NamespacedName) []objects.Waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]objects.Waiting, 0, len(l.waiting[service]))
	for _, w := range l.waiting[service] {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b objects.Waiting) int { return cmp.Compare(a.Reconciler, b.Reconciler) })
	return out
}

// Services returns the services for which a reconciler waits.
func (l *WaitList) Services(reconciler string) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []types.NamespacedName
	for service, waiting := range l.waiting {
		if _, waits := waiting[reconciler]; waits {
			out = append(out, service)
		}
	}
	return out
}

// ServeHTTP responds with what one service waits for, as a JSON list of objects.Waiting.
func (l *WaitList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace, name, ok := strings.Cut(r.URL.Query().Get(objects.ServiceParameter), "/")
	if !ok || namespace == "" || name == "" {
		http.Error(w, "name the service: "+objects.WaitingPath+"?"+objects.ServiceParameter+"=NAMESPACE/NAME", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l.Of(types.NamespacedName{Namespace: namespace, Name: name})) // fails only if the client is gone
}
