package migrate_test

import (
	"fmt"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/migrate"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

var mcsKinds = []string{"serviceimports.multicluster.x-k8s.io", "serviceexports.multicluster.x-k8s.io"}

// Submariner's operator and Seamark write the same CRDs.
func TestKindsBesideSubmariner(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 2)
	if t.Run("the operator comes after Seamark", func(t *testing.T) { operatorComesLater(t, cps[0]) }) {
		t.Run("the operator restarts", func(t *testing.T) { operatorRestarts(t, cps) })
	}
}

// The trap: with objects stored as v1beta1, Submariner's operator cannot write its CRDs, and exits.
func operatorComesLater(t *testing.T, cp *controlplane.ControlPlane) {
	c := harness.Client(t, cp)
	if _, err := crds.Install(t.Context(), c, crds.Member); err != nil {
		t.Fatal(err)
	}
	ns := harness.Namespace(t, cp)
	for i := range 3 {
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("web%d", i)}}
		if err := c.Create(t.Context(), export); err != nil {
			t.Fatal(err)
		}
	}
	if err := lighthouse.WriteCRDs(t, c); !apierrors.IsInvalid(err) {
		t.Fatalf("the operator's CRDs were accepted although objects are stored as v1beta1: %v", err)
	}

	// The way out: with Submariner in the cluster, its CRDs are stored as v1alpha1.
	if err := c.Create(t.Context(), lighthouse.CRDs(t)[3]); err != nil {
		t.Fatal(err)
	}
	if _, err := crds.Install(t.Context(), c, crds.Member); err != nil {
		t.Fatal(err)
	}
	if n, err := crds.StoreOldest(t.Context(), c); err != nil || n < 3 {
		t.Fatalf("%d objects were rewritten, %v", n, err)
	}
	for _, name := range mcsKinds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(t.Context(), types.NamespacedName{Name: name}, crd); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(crd.Status.StoredVersions, []string{"v1alpha1"}) {
			t.Errorf("objects of %s are stored as %v", name, crd.Status.StoredVersions)
		}
	}
	if err := lighthouse.WriteCRDs(t, c); err != nil {
		t.Fatalf("the operator cannot start: %v", err)
	}
	if restored, err := crds.Restore(t.Context(), c); err != nil || len(restored) != 2 {
		t.Fatalf("restored %v, %v", restored, err)
	}
	exports := &mcsv1beta1.ServiceExportList{}
	harness.Eventually(t, "all exports are still there", func() error {
		err := c.List(t.Context(), exports, client.InNamespace(ns))
		if err != nil || len(exports.Items) != 3 {
			return fmt.Errorf("%d exports: %w", len(exports.Items), err)
		}
		return nil
	})
}

// Agents restore what the operator removes at its start, also if they start later, and go on.
func operatorRestarts(t *testing.T, cps []*controlplane.ControlPlane) {
	set := lighthouse.New(t, cps[0], cps, "east", "west")
	for _, a := range set.Agents {
		a.Install(t)
		c, err := brokeradmin.NewClient(a.CP.Config())
		if err != nil {
			t.Fatal(err)
		}
		disable(t, a)
		facts, err := migrate.Read(t.Context(), c)
		if err != nil || facts.Submariner == nil {
			t.Fatalf("facts %+v, %v", facts, err)
		}
		if findings := migrate.Check(facts); len(findings) != 1 || findings[0].Code != "no-lighthouse" {
			t.Fatalf("tunnels alone: got %+v", findings)
		}
	}
	f, err := fleet.New(t.Context(), cps[0], cps, fleet.Options{IDs: []string{"east", "west"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Members {
		m.Agent.BesideSubmariner = true
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	ns := harness.Namespace(t, cps...)
	for i, stopped := range []bool{false, true} {
		crosses(t, f, ns, fmt.Sprintf("web%d", i))
		for _, m := range f.Members {
			if stopped {
				m.Stop()
			}
			if err := lighthouse.WriteCRDs(t, m.Client); err != nil {
				t.Fatalf("the operator of %s cannot start: %v", m.ID, err)
			}
		}
		if !stopped {
			continue
		}
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range f.Members {
		harness.Eventually(t, "v1beta1 is served in "+m.ID+" again, with its objects", func() error {
			_, err := m.Import(ns, "web1")
			return err
		})
	}
	crosses(t, f, ns, "last")
}

// crosses exports a service in east and waits until west has it.
func crosses(t *testing.T, f *fleet.Fleet, ns, name string) {
	t.Helper()
	east, west := f.Members[0], f.Members[1]
	harness.Eventually(t, "v1beta1 is served in east", func() error {
		return east.Client.List(t.Context(), &mcsv1beta1.ServiceExportList{}, client.InNamespace(ns))
	})
	east.Serve(t, fleet.NewService(ns, name), "10.1.0.1")
	east.Export(t, ns, name)
	west.AwaitImport(t, ns, name, map[string][]string{"east": {"10.1.0.1"}})
}

// disable makes the Submariner resource ask for tunnels alone.
func disable(t *testing.T, a *lighthouse.Agent) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"serviceDiscoveryEnabled":false}}`))
	if err := a.Client.Patch(t.Context(), lighthouse.Submariner(a.ID), patch); err != nil {
		t.Fatal(err)
	}
}
