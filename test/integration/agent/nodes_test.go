package agent_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// What was imported is checked again when this cluster's own nodes change: an imported endpoint
// must neither name a node of this cluster nor have the address of one.
func TestImportsFollowOwnNodes(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	name := "worker-" + ns
	svc := fleet.NewService(ns, "web")
	slice := fleet.NewSlice(svc, "abc", "10.1.9.1", "10.1.9.2")
	slice.Endpoints[0].NodeName = ptr.To(name)
	east.Create(t, svc, slice)
	east.Export(t, ns, "web")
	all := map[string][]string{"east": {"10.1.9.1", "10.1.9.2"}}
	west.AwaitImport(t, ns, "web", all)
	awaitNodeName(t, west, ns, name)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	west.Create(t, node)
	t.Cleanup(func() { _ = west.Client.Delete(context.Background(), node) })
	awaitNodeName(t, west, ns, "")
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.9.2"}}
	if err := west.Client.Status().Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	west.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.9.1"}})
	awaitRefused(t, west, ns, true)

	west.Delete(t, node)
	west.AwaitImport(t, ns, "web", all)
	awaitNodeName(t, west, ns, name)
	awaitRefused(t, west, ns, false)
}

// awaitNodeName waits until the first imported endpoint of the service web names this node.
func awaitNodeName(t *testing.T, m *fleet.Member, ns, want string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("node %q of an imported endpoint in %s", want, m.ID), func() error {
		imported, err := m.ImportedSlices(ns, "web")
		if err != nil || len(imported) != 1 || len(imported[0].Endpoints) == 0 {
			return fmt.Errorf("%d slices: %w", len(imported), err)
		}
		if got := ptr.Deref(imported[0].Endpoints[0].NodeName, ""); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func awaitRefused(t *testing.T, m *fleet.Member, ns string, want bool) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("AddressesRefused %v in %s", want, m.ID), func() error {
		si, err := m.Import(ns, "web")
		if err != nil {
			return err
		}
		if meta.IsStatusConditionTrue(si.Status.Conditions, string(v1alpha1.ServiceImportConditionAddressesRefused)) != want {
			return fmt.Errorf("conditions %+v", si.Status.Conditions)
		}
		return nil
	})
}
