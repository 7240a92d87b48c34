package crds

import (
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

type crd = apiextensionsv1.CustomResourceDefinition

func definition(t *testing.T, set Set, name string) Definition {
	t.Helper()
	all, err := Definitions(set)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(d Definition) bool { return d.CRD.Name == name })
	if i < 0 {
		t.Fatalf("set %s has no %s", set, name)
	}
	return all[i]
}

func unlabel(c *crd) { c.Labels = nil }

func only(versions ...string) func(*crd) {
	return func(c *crd) {
		c.Spec.Versions = slices.DeleteFunc(c.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return !slices.Contains(versions, v.Name)
		})
	}
}

func label(key, value string) func(*crd) {
	return func(c *crd) { metav1.SetMetaDataLabel(&c.ObjectMeta, key, value) }
}

func stores(version string) func(*crd) {
	return func(c *crd) {
		for i := range c.Spec.Versions {
			c.Spec.Versions[i].Storage = c.Spec.Versions[i].Name == version
		}
	}
}

func changed(c *crd) { c.Spec.Names.ShortNames = append(c.Spec.Names.ShortNames, "zz") }

func TestDecide(t *testing.T) {
	const (
		imports  = "serviceimports.multicluster.x-k8s.io"
		property = "clusterproperties.about.k8s.io"
		clusters = "clusters.seamark.dev"
	)
	release := func(v string) func(*crd) { return label(mcscrd.ReleaseVersionLabel, v) }
	revision := func(v string) func(*crd) { return label(mcscrd.CustomResourceDefinitionSchemaRevisionLabel, v) }
	seamarkRevision := func(v string) func(*crd) { return label(v1alpha1.LabelSchemaRevision, v) }
	tests := []struct {
		why    string
		set    Set
		name   string
		change []func(*crd)
		action Action
		reason string
	}{
		{"MCS, the same", Member, imports, nil, Keep, "MCS API v0.5.2 (schema revision 0) is installed"},
		{"MCS, with labels of a package manager", Member, imports, []func(*crd){label("helm", "x")}, Keep, "is installed"},
		{"MCS, same release, stored as v1alpha1", Member, imports, []func(*crd){stores("v1alpha1")}, Keep, "changes of another client"},
		{"MCS, same release, changed by another client", Member, imports, []func(*crd){changed}, Keep, "changes of another client"},
		{"MCS, same release, without v1beta1", Member, imports, []func(*crd){only("v1alpha1")}, Update, "restored"},
		{"MCS, older release", Member, imports, []func(*crd){release("v0.5.1"), revision("7")}, Update,
			"from MCS API v0.5.1 (schema revision 7)"},
		{"MCS, older by number, not by text", Member, imports, []func(*crd){release("v0.5.10")}, Keep, "newer than the bundled"},
		{"MCS, pre-release of the bundled one", Member, imports, []func(*crd){release("v0.5.2-rc.1")}, Update, "from MCS API v0.5.2-rc.1"},
		{"MCS, newer revision", Member, imports, []func(*crd){revision("1")}, Keep, "newer"},
		{"MCS, newer and unusable", Member, imports, []func(*crd){release("v1.0.0"), only("v1alpha1")}, Refuse, "newer version of Seamark"},
		{"MCS, foreign", Member, imports, []func(*crd){unlabel, changed}, Keep, "another tool installed it"},
		{"MCS, foreign, v1alpha1 only", Broker, imports, []func(*crd){unlabel, only("v1alpha1")}, Refuse,
			"kubectl label --overwrite crd serviceimports.multicluster.x-k8s.io multicluster.x-k8s.io/release-version=v0.0.0"},
		{"MCS, handed over", Broker, imports, []func(*crd){unlabel, release("v0.0.0"), only("v1alpha1")}, Update, "from MCS API v0.0.0"},
		{"MCS, unreadable release", Member, imports, []func(*crd){release("latest")}, Keep, "another tool installed it"},
		{"property, bundled", Member, property, nil, Keep, "schema revision 1 is installed"},
		{"property, bundled, changed", Member, property, []func(*crd){changed}, Update, "restored"},
		{"property, foreign, v1alpha1 only", Member, property, []func(*crd){unlabel, only("v1alpha1")}, Keep, "another tool installed it"},
		{"property, foreign, no known version", Member, property, []func(*crd){unlabel, only()}, Refuse, "needs v1beta1 or v1alpha1"},
		{"property, foreign, other scope", Member, property, []func(*crd){unlabel, func(c *crd) { c.Spec.Scope = "Namespaced" }}, Refuse,
			"upgrade what installed it"},
		{"cluster, newer", Broker, clusters, []func(*crd){seamarkRevision("12")}, Keep, "schema revision 12 is installed and newer"},
		{"cluster, older", Broker, clusters, []func(*crd){seamarkRevision("0")}, Update, "from schema revision 0 to schema revision 7"},
		{"cluster, without a revision", Broker, clusters, []func(*crd){unlabel}, Update, "without a revision"},
		{"cluster, being deleted", Broker, clusters, []func(*crd){func(c *crd) { c.DeletionTimestamp = new(metav1.NewTime(time.Now())) }}, Refuse,
			"being deleted"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			wanted := definition(t, test.set, test.name)
			existing := wanted.CRD.DeepCopy()
			for _, change := range test.change {
				change(existing)
			}
			got := Decide(existing, wanted)
			if got.Action != test.action || !strings.Contains(got.Reason, test.reason) {
				t.Errorf("got %s (%s), want %s (…%s…)", got.Action, got.Reason, test.action, test.reason)
			}
		})
	}
	if got := Decide(nil, definition(t, Broker, clusters)); got.Action != Create {
		t.Errorf("not installed: got %+v", got)
	}
}

func TestMergedKeepsWhatMustSurvive(t *testing.T) {
	bundled := definition(t, Member, "serviceimports.multicluster.x-k8s.io").CRD
	existing := bundled.DeepCopy()
	existing.ResourceVersion = "17"
	existing.Labels = map[string]string{mcscrd.ReleaseVersionLabel: "v0.4.0", "team": "net"}
	existing.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
	existing.Spec.Versions[0].Name, existing.Spec.Versions[0].Storage = "v1alpha0", true
	existing.Spec.Versions[1].Name, existing.Spec.Versions[1].Storage = "v1gamma1", false
	existing.Status.StoredVersions = []string{"v1alpha0"}

	got := mergedCRD(existing, bundled)
	if got.ResourceVersion != "17" || got.Labels["team"] != "net" || got.Labels[mcscrd.ReleaseVersionLabel] != "v0.5.2" {
		t.Errorf("metadata: %+v", got.ObjectMeta)
	}
	if got.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter {
		t.Error("the conversion webhook is gone")
	}
	var names []string
	for _, v := range got.Spec.Versions {
		names = append(names, v.Name)
		if v.Storage != (v.Name == "v1beta1") {
			t.Errorf("version %s: storage is %v", v.Name, v.Storage)
		}
	}
	if want := []string{"v1alpha1", "v1beta1", "v1alpha0"}; !slices.Equal(names, want) {
		t.Errorf("versions %v, want %v", names, want)
	}
	if existing.Labels[mcscrd.ReleaseVersionLabel] != "v0.4.0" {
		t.Error("merging changed its input")
	}
}
