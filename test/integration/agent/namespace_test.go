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

// A namespace that is deleted takes its imports and exports with it, is not held up by the agent, and gets them back when it
// is made again. Deleting one for good takes a controller-manager, so these clusters have one.
func TestNamespaceDeletedAndMadeAgain(t *testing.T) {
	cps := harness.Fresh(t, 2, harness.WithControllerManager)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east, west)
	svc := fleet.NewService(ns, "web")
	east.Serve(t, svc, "10.1.0.1")
	east.Export(t, ns, "web")
	imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})

	deleteNamespace(t, west, ns)
	west.Namespace(t, ns)
	imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})

	deleteNamespace(t, east, ns)
	notImported(t, west, ns, "web")
	nothingOnBroker(t, f, ns)
}

func deleteNamespace(t *testing.T, m *fleet.Member, name string) {
	t.Helper()
	m.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	harness.Eventually(t, fmt.Sprintf("namespace %s gone from %s", name, m.ID), func() error {
		err := m.Client.Get(context.Background(), types.NamespacedName{Name: name}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %w", err)
	})
}
