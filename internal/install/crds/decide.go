package crds

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Action is what happens to a CRD.
type Action string

const (
	// Create installs a CRD that does not exist.
	Create Action = "create"
	// Update replaces a CRD of Seamark, or one of an older release of the MCS API.
	Update Action = "update"
	// Keep leaves the CRD as it is.
	Keep Action = "keep"
	// Refuse stops the installation: the CRD does not serve what Seamark needs and belongs to another
	// tool.
	Refuse Action = "refuse"
)

// Decision is what to do with one CRD, and why, as text for users.
type Decision struct {
	Action Action
	Reason string
}

// Decide compares an existing CRD, nil if there is none, with the bundled one. It never decides to
// replace a newer CRD, nor one of another tool whose labels name no known release.
func Decide(existing *apiextensionsv1.CustomResourceDefinition, bundled Definition) Decision {
	if existing == nil {
		return Decision{Create, "not installed yet"}
	}
	if existing.DeletionTimestamp != nil {
		return Decision{Refuse, fmt.Sprintf("%s is being deleted, with all its objects: wait until it is gone, then try again",
			existing.Name)}
	}
	want, _ := stampOf(bundled.CRD)
	have, known := stampOf(existing)
	if !known || have.family != want.family {
		return decideForeign(existing, bundled, want)
	}
	switch have.compare(want) {
	case 1:
		return keepIfServed(existing, bundled, fmt.Sprintf("%s is installed and newer than the bundled %s", have, want),
			"install a newer version of Seamark")
	case -1:
		return Decision{Update, fmt.Sprintf("from %s to %s", have, want)}
	}
	if bundled.storesOldest && StorageVersion(existing) != OldestStored {
		return Decision{Update, fmt.Sprintf("objects are stored as %s now: Submariner's operator could not start otherwise", OldestStored)}
	}
	if sameDefinition(existing, mergedCRD(existing, bundled.CRD)) {
		return Decision{Keep, fmt.Sprintf("%s is installed", have)}
	}
	if want.family == familyMCS && servesNeeded(existing, bundled) {
		return Decision{Keep, fmt.Sprintf("%s is installed, with changes of another client", have)}
	}
	return Decision{Update, fmt.Sprintf("%s is installed, but differs from the bundled one: restored", have)}
}

// decideForeign decides about a CRD whose labels name no known release.
func decideForeign(existing *apiextensionsv1.CustomResourceDefinition, bundled Definition, want stamp) Decision {
	if existing.Spec.Group == v1alpha1.GroupVersion.Group {
		return Decision{Update, fmt.Sprintf("from one without a revision to %s", want)}
	}
	label := v1alpha1.LabelSchemaRevision + "=0"
	if want.family == familyMCS {
		label = mcscrd.ReleaseVersionLabel + "=v0.0.0"
	}
	return keepIfServed(existing, bundled, "another tool installed it, and it serves what is needed",
		fmt.Sprintf("upgrade what installed it, or hand it over to Seamark with: kubectl label --overwrite crd %s %s",
			existing.Name, label))
}

func keepIfServed(existing *apiextensionsv1.CustomResourceDefinition, bundled Definition, reason, remedy string) Decision {
	if servesNeeded(existing, bundled) {
		return Decision{Keep, reason}
	}
	var served []string
	for _, v := range existing.Spec.Versions {
		if v.Served {
			served = append(served, v.Name)
		}
	}
	return Decision{Refuse, fmt.Sprintf("%s must not be replaced and serves %s (%s), while Seamark needs %s (%s): %s",
		existing.Name, strings.Join(served, ", "), existing.Spec.Scope,
		strings.Join(bundled.AnyOf, " or "), bundled.CRD.Spec.Scope, remedy)}
}

// servesNeeded reports whether an existing CRD serves a version of the kind that Seamark works
// with.
func servesNeeded(existing *apiextensionsv1.CustomResourceDefinition, bundled Definition) bool {
	return existing.Spec.Scope == bundled.CRD.Spec.Scope && existing.Spec.Names.Kind == bundled.CRD.Spec.Names.Kind &&
		slices.ContainsFunc(existing.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Served && slices.Contains(bundled.AnyOf, v.Name)
		})
}

// family is the project whose numbering a stamp follows.
type family string

const (
	familyMCS     family = "MCS API"
	familySeamark family = "Seamark"
)

// stamp is the version in the labels of a CRD.
type stamp struct {
	family   family
	release  *version.Version // MCS API only
	revision int
}

// stampOf returns the stamp of a CRD. ok is false without labels, or with one that cannot be
// parsed.
func stampOf(crd *apiextensionsv1.CustomResourceDefinition) (s stamp, ok bool) {
	if text, ok := crd.Labels[mcscrd.ReleaseVersionLabel]; ok {
		release, err := version.ParseSemantic(text)
		if err != nil {
			return stamp{}, false
		}
		revision, err := revisionOf(crd.Labels[mcscrd.CustomResourceDefinitionSchemaRevisionLabel])
		return stamp{familyMCS, release, revision}, err == nil
	}
	if text, ok := crd.Labels[v1alpha1.LabelSchemaRevision]; ok {
		revision, err := revisionOf(text)
		return stamp{family: familySeamark, revision: revision}, err == nil
	}
	return stamp{}, false
}

func revisionOf(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.Atoi(text)
}

// compare returns 1 if s is newer than o, -1 if it is older, and 0 if they are equal. Both are of
// one family.
func (s stamp) compare(o stamp) int {
	if s.release != nil {
		switch {
		case o.release.LessThan(s.release):
			return 1
		case s.release.LessThan(o.release):
			return -1
		}
	}
	switch {
	case s.revision > o.revision:
		return 1
	case s.revision < o.revision:
		return -1
	}
	return 0
}

// String returns the stamp as text for users: "MCS API v0.5.2 (schema revision 0)".
func (s stamp) String() string {
	if s.release == nil {
		return fmt.Sprintf("schema revision %d", s.revision)
	}
	return fmt.Sprintf("%s v%s (schema revision %d)", s.family, s.release, s.revision)
}

// mergedCRD returns the bundled CRD with what must be kept of the existing one: labels and
// annotations of others, a conversion webhook, and versions in which objects are still stored (the
// API server does not allow to remove those).
func mergedCRD(existing, bundled *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	result := existing.DeepCopy()
	result.Labels = overlay(existing.Labels, bundled.Labels)
	result.Annotations = overlay(existing.Annotations, bundled.Annotations)
	result.Spec = *bundled.Spec.DeepCopy()
	if c := existing.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		result.Spec.Conversion = c.DeepCopy()
	}
	for _, v := range existing.Spec.Versions {
		isBundled := slices.ContainsFunc(bundled.Spec.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return o.Name == v.Name
		})
		if !isBundled && slices.Contains(existing.Status.StoredVersions, v.Name) {
			kept := *v.DeepCopy()
			kept.Storage = false
			result.Spec.Versions = append(result.Spec.Versions, kept)
		}
	}
	return result
}

func overlay(under, over map[string]string) map[string]string {
	if len(over) == 0 {
		return under
	}
	result := maps.Clone(over)
	for key, value := range under {
		if _, ok := over[key]; !ok {
			result[key] = value
		}
	}
	return result
}

// sameDefinition reports whether an update would change nothing. It compares JSON, because defaults
// in schemas are raw text whose spacing may differ.
func sameDefinition(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		reflect.DeepEqual(asJSON(a.Spec), asJSON(b.Spec))
}

func asJSON(spec apiextensionsv1.CustomResourceDefinitionSpec) any {
	text, err := json.Marshal(spec)
	if err != nil {
		return err // not equal to anything
	}
	var result any
	if err := json.Unmarshal(text, &result); err != nil {
		return err
	}
	return result
}
