package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	aboutv1alpha1 "github.com/seamark-dev/seamark/api/about/v1alpha1"
	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	importsCRD  = "serviceimports.multicluster.x-k8s.io"
	exportsCRD  = "serviceexports.multicluster.x-k8s.io"
	propertyCRD = "clusterproperties.about.k8s.io"
	claimCRD    = "clusterclaims.multicluster.k8s.io"
)

// versions maps each CRD of the API server to what changes when its spec, labels or annotations are
// written. Equal maps mean that an installer wrote nothing. The resourceVersion would not do:
// several controllers of the API server write a CRD's conditions, some after it is established.
func versions(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	result := map[string]string{}
	for _, crd := range list.Items {
		result[crd.Name] = fmt.Sprint(crd.UID, crd.Generation, crd.Labels, crd.Annotations)
	}
	return result
}

// deleteCRDs deletes all CRDs and waits until they are gone.
func deleteCRDs(t *testing.T, c client.Client) {
	t.Helper()
	if err := c.DeleteAllOf(t.Context(), &apiextensionsv1.CustomResourceDefinition{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "no CustomResourceDefinitions", func() error {
		if left := versions(t, c); len(left) > 0 {
			return fmt.Errorf("CRDs are left: %v", left)
		}
		return nil
	})
}

// createCRD creates a bundled CRD with a change, as another tool would.
func createCRD(t *testing.T, c client.Client, name string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	t.Helper()
	definitions, err := crds.Definitions(crds.Member)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(definitions, func(d crds.Definition) bool { return d.CRD.Name == name })
	change(definitions[i].CRD)
	if err := c.Create(t.Context(), definitions[i].CRD); err != nil {
		t.Fatal(err)
	}
	name = definitions[i].CRD.Name
	harness.Eventually(t, name+" is served", func() error {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &crd); err != nil {
			return err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", crd.Status.Conditions)
	})
}

// onlyV1alpha1 removes all other versions, as in the CRDs of old tools.
func onlyV1alpha1(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name != "v1alpha1"
	})
	crd.Spec.Versions[0].Storage = true
}

func TestInstallCRDs(t *testing.T) {
	c := newClient(t, harness.Fresh(t, 1)[0].Config())
	ctx := t.Context()

	t.Run("fresh, then again", func(t *testing.T) {
		for _, set := range []crds.Set{crds.Broker, crds.Member} {
			first, err := crds.Install(ctx, c, set)
			if err != nil {
				t.Fatal(err)
			}
			before := versions(t, c)
			second, err := crds.Install(ctx, c, set)
			if err != nil {
				t.Fatal(err)
			}
			if len(first) != 4 || len(namesOf(second, crds.Keep)) != 4 {
				t.Errorf("%s: first %v, second %v", set, first, second)
			}
			if after := versions(t, c); !maps.Equal(before, after) {
				t.Errorf("%s: installing again wrote: %v, then %v", set, before, after)
			}
		}
		// Established means served: both versions can be written at once.
		property := &aboutv1alpha1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		property.Spec.Value = "y"
		if err := c.Create(ctx, property); err != nil {
			t.Error(err)
		}
		var read aboutv1beta1.ClusterProperty
		if err := c.Get(ctx, client.ObjectKey{Name: "x"}, &read); err != nil || read.Spec.Value != "y" {
			t.Errorf("read as v1beta1: %+v, %v", read, err)
		}
	})

	t.Run("over an older release with its stored version", func(t *testing.T) {
		deleteCRDs(t, c)
		createCRD(t, c, importsCRD, func(crd *apiextensionsv1.CustomResourceDefinition) {
			onlyV1alpha1(crd)
			crd.Spec.Versions[0].Name = "v1alpha0"
			crd.Labels = map[string]string{mcscrd.ReleaseVersionLabel: "v0.3.0", "team": "net"}
		})
		outcomes, err := crds.Install(ctx, c, crds.Member)
		if err != nil {
			t.Fatal(err)
		}
		if got := namesOf(outcomes, crds.Update); !slices.Equal(got, []string{importsCRD}) {
			t.Errorf("updated %v", got)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, client.ObjectKey{Name: importsCRD}, &crd); err != nil {
			t.Fatal(err)
		}
		if len(crd.Spec.Versions) != 3 || crd.Labels["team"] != "net" || crd.Labels[mcscrd.ReleaseVersionLabel] != "v0.5.2" {
			t.Errorf("after the update: labels %v, %d versions", crd.Labels, len(crd.Spec.Versions))
		}
		before := versions(t, c)
		if _, err := crds.Install(ctx, c, crds.Member); err != nil || !maps.Equal(before, versions(t, c)) {
			t.Errorf("installing again wrote, or failed: %v", err)
		}
	})

	t.Run("over newer ones", func(t *testing.T) {
		deleteCRDs(t, c)
		createCRD(t, c, exportsCRD, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Labels[mcscrd.ReleaseVersionLabel] = "v0.6.0" })
		createCRD(t, c, propertyCRD, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Labels[v1alpha1.LabelSchemaRevision] = "99" })
		before := versions(t, c)
		outcomes, err := crds.Install(ctx, c, crds.Member)
		if err != nil {
			t.Fatal(err)
		}
		if got := namesOf(outcomes, crds.Keep); !slices.Equal(got, []string{propertyCRD, exportsCRD}) {
			t.Errorf("kept %v", got)
		}
		after := versions(t, c)
		if after[exportsCRD] != before[exportsCRD] || after[propertyCRD] != before[propertyCRD] {
			t.Error("a newer CRD was written")
		}
	})

	t.Run("beside those of another tool", func(t *testing.T) {
		deleteCRDs(t, c)
		foreign := func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Labels = map[string]string{"installed-by": "another-tool"}
			crd.Spec.Names.Categories = nil
		}
		createCRD(t, c, importsCRD, foreign)
		createCRD(t, c, propertyCRD, func(crd *apiextensionsv1.CustomResourceDefinition) { foreign(crd); onlyV1alpha1(crd) })
		outcomes, err := crds.Install(ctx, c, crds.Member)
		if err != nil {
			t.Fatal(err)
		}
		if got := namesOf(outcomes, crds.Keep); !slices.Equal(got, []string{propertyCRD, importsCRD}) {
			t.Errorf("kept %v", got)
		}
	})

	t.Run("refused without writing", func(t *testing.T) {
		deleteCRDs(t, c)
		createCRD(t, c, importsCRD, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Labels = nil; onlyV1alpha1(crd) })
		_, err := crds.Install(ctx, c, crds.Member)
		if err == nil || !strings.Contains(err.Error(), "serves v1alpha1") || !strings.Contains(err.Error(), "kubectl label") {
			t.Errorf("got %v", err)
		}
		if got := versions(t, c); len(got) != 1 {
			t.Errorf("CRDs: %v", got)
		}
		// The command in the error helps.
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, client.ObjectKey{Name: importsCRD}, &crd); err != nil {
			t.Fatal(err)
		}
		crd.Labels = map[string]string{mcscrd.ReleaseVersionLabel: "v0.0.0"}
		if err := c.Update(ctx, &crd); err != nil {
			t.Fatal(err)
		}
		if _, err := crds.Install(ctx, c, crds.Member); err != nil {
			t.Error(err)
		}
	})

	t.Run("many installers at once", func(t *testing.T) {
		deleteCRDs(t, c)
		var group sync.WaitGroup
		created := make(chan string, 64)
		for i := range 8 {
			set := []crds.Set{crds.Broker, crds.Member}[i%2]
			group.Go(func() {
				outcomes, err := crds.Install(ctx, c, set)
				if err != nil {
					t.Error(err)
				}
				for _, name := range namesOf(outcomes, crds.Create) {
					created <- name
				}
			})
		}
		group.Wait()
		close(created)
		names := slices.Sorted(chanValues(created))
		if len(names) != 7 || len(slices.Compact(names)) != 7 {
			t.Errorf("created %v; want each of the seven once", names)
		}
	})
}

func chanValues(c <-chan string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}

// If another CRD has the names of the kind, Install must fail at once and say so.
func TestInstallCRDsWithNamesTaken(t *testing.T) {
	c := newClient(t, harness.Fresh(t, 1)[0].Config())
	createCRD(t, c, claimCRD, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Labels = nil
		crd.Name = "others.multicluster.k8s.io"
		crd.Spec.Names.Plural, crd.Spec.Names.Singular = "others", "other"
	})
	_, err := crds.Install(t.Context(), c, crds.Member)
	if err == nil || !strings.Contains(err.Error(), "its names are taken") || apierrors.IsTimeout(err) {
		t.Errorf("got %v", err)
	}
}
