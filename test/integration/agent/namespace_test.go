package agent_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// The agent does not delay the deletion of a namespace. Its imports and exports are deleted with
// it, and its imports come back when it is created again.
func TestNamespaceDeletedAndRecreated(t *testing.T) {
	f, address := withNamespaceController(t)
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east, west)
	svc := fleet.NewService(ns, "web")
	east.Serve(t, svc, "10.1.0.1")
	east.Export(t, ns, "web")
	west.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}})

	awaitImportsMetric(t, address, 1)
	deleteNamespace(t, west, ns)
	awaitImportsMetric(t, address, 0)
	west.Namespace(t, ns)
	west.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}})

	deleteNamespace(t, east, ns)
	west.AwaitNoImport(t, ns, "web")
	awaitNothingOnBroker(t, f, ns)
}

// withNamespaceController starts east and west, and returns the address of west's metrics. These
// clusters have a controller-manager, because without one a namespace is never deleted completely.
func withNamespaceController(t *testing.T) (f *fleet.Fleet, metrics string) {
	t.Helper()
	cps := harness.Fresh(t, 2, harness.WithControllerManager)
	f = fleet.Started(t, cps[0], cps, fleet.Options{})
	f.Members[1].Stop()
	metrics = freeAddress(t)
	f.Members[1].StartProcess(t, "--metrics-bind-address="+metrics)
	return f, metrics
}

// awaitImportsMetric waits until an agent counts this number of ready imports and no others.
func awaitImportsMetric(t *testing.T, address string, want float64) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%v imports in the metrics", want), func() error {
		text := scrape(t, address)
		ready, _ := seriesValue(text, `seamark_imports{state="ready"}`)
		notReady, _ := seriesValue(text, `seamark_imports{state="not_ready"}`)
		if ready != want || notReady != 0 {
			return fmt.Errorf("%v are ready, %v are not", ready, notReady)
		}
		return nil
	})
}

func deleteNamespace(t *testing.T, m *fleet.Member, name string) {
	t.Helper()
	m.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	harness.Eventually(t, fmt.Sprintf("namespace %s deleted in %s", name, m.ID), func() error {
		err := m.Client.Get(context.Background(), types.NamespacedName{Name: name}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it still exists (%w)", err)
	})
}
