package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1alpha1 "github.com/seamark-dev/seamark/api/about/v1alpha1"
	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/test/harness"
)

// valueOf returns a JSON string of n times the given character.
func valueOf(char string, n int) string { return `"` + strings.Repeat(char, n) + `"` }

func TestClusterPropertyAndClaim(t *testing.T) {
	_, c := served(t)
	const longest = aboutv1beta1.MaxValueBytes
	both := []variant{
		{"good", nil, ""},
		{"longest", []edit{{"spec/value", valueOf("x", longest)}}, ""},
		{"long", []edit{{"spec/value", valueOf("x", longest+1)}}, "may not be more than 128000"},
		{"longest of two-byte characters", []edit{{"spec/value", valueOf("é", longest/2)}}, ""},
		{"more bytes than characters", []edit{{"spec/value", valueOf("é", longest/2+1)}}, "must be at most 128000 bytes long in UTF-8"},
		{"no value", []edit{{"spec/value", ""}}, "spec.value: Required value"},
		{"no spec", []edit{{"spec", ""}}, "spec: Required value"},
		{"a number", []edit{{"spec/value", "7"}}, "must be of type string"},
	}
	for apiVersion, kind := range map[string]string{
		"about.k8s.io/v1beta1": "ClusterProperty", "about.k8s.io/v1alpha1": "ClusterProperty", "multicluster.k8s.io/v1": "ClusterClaim",
	} {
		t.Run(apiVersion, func(t *testing.T) {
			good := func() *unstructured.Unstructured {
				return object(t, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"fingerprint.example.com"},"spec":{"value":"x"}}`,
					apiVersion, kind))
			}
			create(t, c, good, both)
			empty := variant{"empty", []edit{{"spec/value", `""`}}, "should be at least 1 chars long"}
			if kind == "ClusterClaim" {
				empty.want = "" // KEP-2149 names no lower bound
			}
			create(t, c, good, []variant{empty})
		})
	}
}

func property(name, value string) *aboutv1beta1.ClusterProperty {
	return &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
}

func claim(name, value string) *claimsv1.ClusterClaim {
	return &claimsv1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claimsv1.ClusterClaimSpec{Value: value}}
}

// setValue reads an object of either kind and writes it with another value.
func setValue(t *testing.T, c client.Client, o client.Object, value string) error {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	switch o := o.(type) {
	case *aboutv1beta1.ClusterProperty:
		o.Spec.Value = value
	case *aboutv1alpha1.ClusterProperty:
		o.Spec.Value = value
	case *claimsv1.ClusterClaim:
		o.Spec.Value = value
	}
	return c.Update(t.Context(), o)
}

// eventually repeats an attempt until it is denied with the fragment, or accepted if the fragment
// is empty. Policies and their parameters take effect with a delay.
func eventually(t *testing.T, state, fragment string, attempt func() error) {
	t.Helper()
	harness.Eventually(t, state, func() error {
		err := attempt()
		if (err == nil) == (fragment == "") && (err == nil || strings.Contains(err.Error(), fragment)) {
			return nil
		}
		return fmt.Errorf("want %q, got %w", fragment, errors.Join(errors.New("another result"), err))
	})
}

func awaitIdentityPolicies(t *testing.T, c client.Client) {
	t.Helper()
	eventually(t, "membership without an id is refused", "create-clusterproperty-cluster.clusterset.k8s.io-first", func() error {
		return c.Create(t.Context(), property(aboutv1beta1.PropertyClusterSet, "prod"), client.DryRunAll)
	})
	eventually(t, "bad ids are refused", "must hold a cluster id", func() error {
		return c.Create(t.Context(), property(aboutv1beta1.PropertyClusterID, "East"), client.DryRunAll)
	})
}

func TestIdentity(t *testing.T) {
	c := newClient(t, harness.Fresh(t, 1)[0].Config())
	ctx := t.Context()
	install(t, c, crds.Member)
	if _, err := policies.Install(ctx, c, policies.Member); err != nil {
		t.Fatal(err)
	}
	awaitIdentityPolicies(t, c)
	check(t, c.Create(ctx, claim(claimsv1.ClaimClusterSet, "prod"), client.DryRunAll),
		"create-clusterproperty-cluster.clusterset.k8s.io-first")

	t.Run("values", func(t *testing.T) {
		for _, o := range []func(string) client.Object{
			func(v string) client.Object { return property(aboutv1beta1.PropertyClusterID, v) },
			func(v string) client.Object { return property(aboutv1beta1.PropertyClusterIDOld, v) },
			func(v string) client.Object { return claim(claimsv1.ClaimClusterID, v) },
		} {
			for value, want := range map[string]string{
				"east": "", "east.eu": "", long63: "", "721ab723-13bc-11e5-aec2-42010af0021e": "",
				"a.b.c": "must hold a cluster id", "East": "must hold a cluster id", "east_1": "must hold a cluster id",
				long64: "of at most 63 characters in all", "-east": "must hold a cluster id", "east.": "must hold a cluster id",
			} {
				check(t, c.Create(ctx, o(value), client.DryRunAll), want)
			}
		}
		check(t, c.Create(ctx, property("fingerprint.example.com", "Any Value!"), client.DryRunAll), "")
	})

	id, oldID := property(aboutv1beta1.PropertyClusterID, "east"), property(aboutv1beta1.PropertyClusterIDOld, "east")
	idClaim := claim(claimsv1.ClaimClusterID, "east")
	identity := []client.Object{id, oldID, idClaim}
	t.Run("outside a clusterset the id can change", func(t *testing.T) {
		for _, o := range identity {
			if err := c.Create(ctx, o); err != nil {
				t.Fatal(err)
			}
			check(t, setValue(t, c, o, "west"), "")
			check(t, setValue(t, c, o, "east"), "")
		}
	})

	membership, membershipClaim := property(aboutv1beta1.PropertyClusterSet, "prod"), claim(claimsv1.ClaimClusterSet, "prod")
	t.Run("a cluster with an id becomes a member", func(t *testing.T) {
		eventually(t, "joining", "", func() error { return c.Create(ctx, membership.DeepCopy()) })
		check(t, c.Create(ctx, membershipClaim), "")
	})

	t.Run("a member's id cannot change", func(t *testing.T) {
		const locked = "in clusterset prod and can neither change nor be deleted while the cluster is a member: run `seamark leave` first"
		eventually(t, "the lock", locked, func() error { return c.Delete(ctx, id, client.DryRunAll) })
		for _, o := range identity {
			check(t, setValue(t, c, o, "west"), locked)
			check(t, c.Delete(ctx, o, client.DryRunAll), locked)
			check(t, setValue(t, c, o, "east"), "")
		}
		check(t, setValue(t, c, &aboutv1alpha1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: id.Name}}, "west"), locked)
		check(t, c.DeleteAllOf(ctx, &aboutv1beta1.ClusterProperty{},
			client.MatchingFields{"metadata.name": id.Name}), locked)
		check(t, c.DeleteAllOf(ctx, &claimsv1.ClusterClaim{}, client.MatchingFields{"metadata.name": idClaim.Name}), locked)
	})
	t.Run("its clusterset cannot change", func(t *testing.T) {
		const locked = "clusterset.k8s.io records that this cluster is a member of clusterset prod and cannot change: run `seamark leave` first"
		check(t, setValue(t, c, property(aboutv1beta1.PropertyClusterSet, ""), "test"), locked)
		check(t, setValue(t, c, claim(claimsv1.ClaimClusterSet, ""), "test"), locked)
	})
	t.Run("its clusterset cannot be deleted", func(t *testing.T) {
		const locked = "clusterset.k8s.io records that this cluster is a member of clusterset prod and cannot be deleted while it is one"
		for _, o := range []client.Object{membership, membershipClaim} {
			check(t, c.Delete(ctx, o, client.DryRunAll), locked)
		}
		check(t, c.DeleteAllOf(ctx, &aboutv1beta1.ClusterProperty{}, client.MatchingFields{"metadata.name": membership.Name}), locked)
		check(t, c.DeleteAllOf(ctx, &claimsv1.ClusterClaim{}, client.MatchingFields{"metadata.name": membershipClaim.Name}), locked)
		check(t, c.Delete(ctx, &aboutv1alpha1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: membership.Name}}, client.DryRunAll), locked)
	})
	t.Run("labels can change", func(t *testing.T) {
		id.Labels = map[string]string{"touched": "yes"}
		check(t, c.Update(ctx, id), "")
	})
	t.Run("after leaving the id can change again", func(t *testing.T) {
		leaving := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"seamark.dev/leaving":"true"}}}`))
		for _, o := range []client.Object{membership, membershipClaim} {
			check(t, c.Patch(ctx, o, leaving), "")
		}
		check(t, c.Delete(ctx, membershipClaim), "")
		check(t, c.Delete(ctx, membership), "")
		eventually(t, "the lock opens", "", func() error { return c.Delete(ctx, id, client.DryRunAll) })
		for _, o := range identity {
			check(t, setValue(t, c, o, "west"), "")
			check(t, c.Delete(ctx, o), "")
		}
	})
	t.Run("the CRD of a member can be deleted", func(t *testing.T) {
		eventually(t, "joining again", "", func() error {
			if err := c.Create(ctx, property(aboutv1beta1.PropertyClusterID, "east")); client.IgnoreAlreadyExists(err) != nil {
				return err
			}
			return c.Create(ctx, property(aboutv1beta1.PropertyClusterSet, "prod"))
		})
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: propertyCRD}}
		check(t, c.Delete(ctx, crd), "")
		harness.Eventually(t, "the CRD is gone", func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it still exists: %v %w", crd.Status.Conditions, err)
			}
			return nil
		})
	})
}

// The same rules apply where the CRD of another tool serves only v1alpha1.
func TestIdentityOnForeignClusterProperty(t *testing.T) {
	c := newClient(t, harness.Fresh(t, 1)[0].Config())
	ctx := t.Context()
	createCRD(t, c, propertyCRD, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Labels = nil; onlyV1alpha1(crd) })
	install(t, c, crds.Member)
	if _, err := policies.Install(ctx, c, policies.Member); err != nil {
		t.Fatal(err)
	}
	old := func(name, value string) *aboutv1alpha1.ClusterProperty {
		return &aboutv1alpha1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aboutv1alpha1.ClusterPropertySpec{Value: value}}
	}
	id, membership := old(aboutv1beta1.PropertyClusterID, "east"), old(aboutv1beta1.PropertyClusterSet, "prod")
	eventually(t, "membership without an id is refused", "create-clusterproperty-cluster.clusterset.k8s.io-first", func() error {
		return c.Create(ctx, membership.DeepCopy(), client.DryRunAll)
	})
	eventually(t, "bad ids are refused", "must hold a cluster id", func() error {
		return c.Create(ctx, old(id.Name, "East"), client.DryRunAll)
	})
	check(t, c.Create(ctx, id), "")
	eventually(t, "joining", "", func() error { return c.Create(ctx, membership.DeepCopy()) })
	eventually(t, "the lock", "in clusterset prod", func() error { return c.Delete(ctx, id, client.DryRunAll) })
	check(t, setValue(t, c, id, "west"), "in clusterset prod")
}
