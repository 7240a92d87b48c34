package dataplane_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// A ServiceImport that a user deletes comes back with its address, with every data plane, and its
// slices stay. The garbage collector runs: it would delete what names the ServiceImport as its
// owner.
func TestDeletedImportComesBackWithItsAddress(t *testing.T) {
	cps := harness.Fresh(t, 2, harness.WithControllerManager)
	f := fleet.Started(t, cps[0], cps, fleet.Options{DataPlanes: map[string]v1alpha1.DataPlane{"west": v1alpha1.DataPlaneNFTables}})
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east, west)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	for _, m := range []*fleet.Member{east, west} {
		before := waitReachable(t, m, ns, "web", 1)
		imported, err := m.ImportedSlices(ns, "web")
		if err != nil || len(imported) != 1 {
			t.Fatalf("%s: slices %v, %v", m.ID, imported, err)
		}
		// In the foreground, so that the collector is certain to act before the agent.
		if err := m.Client.Delete(context.Background(), before, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "a new ServiceImport with its slices in "+m.ID, func() error {
			now, err := m.Import(ns, "web")
			if err != nil || now.UID == before.UID {
				return fmt.Errorf("ServiceImport %s, was %s: %w", now.UID, before.UID, err)
			}
			return nil
		})
		if kept, err := m.ImportedSlices(ns, "web"); err != nil || len(kept) != 1 || kept[0].UID != imported[0].UID {
			t.Errorf("%s: slices %v, %v", m.ID, kept, err)
		}
		if now := waitReachable(t, m, ns, "web", 1); !slices.Equal(now.Spec.IPs, before.Spec.IPs) {
			t.Errorf("%s: the address was %v and is %v", m.ID, before.Spec.IPs, now.Spec.IPs)
		}
	}

	// Without an owner nothing but the agent deletes the derived Service and the slices, also when it
	// was down.
	svc := waitDerived(t, east, ns, "", func(*corev1.Service) error { return nil })
	si := waitReachable(t, east, ns, "web", 1)
	east.Stop()
	west.Unexport(t, ns, "web")
	west.AwaitNoImport(t, ns, "web")
	east.Delete(t, si)
	waitDerived(t, east, ns, svc.UID, func(*corev1.Service) error { return nil })
	if err := east.Start(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, "derived Service", func() (client.Object, error) { return derived(east, ns) })
	east.AwaitNoImport(t, ns, "web")
}
