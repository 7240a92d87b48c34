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

// Action is what happens to a definition.
type Action string

const (
	// Create installs a definition that is not there.
	Create Action = "create"
	// Update replaces one that is ours, or of an older release than ours.
	Update Action = "update"
	// Keep leaves what is there.
	Keep Action = "keep"
	// Refuse stops: what is there does not serve what Seamark needs and is not ours to change.
	Refuse Action = "refuse"
)

// Decision is what to do about one definition, and why, in words for people.
type Decision struct {
	Action Action
	Reason string
}

// Decide compares what the API server has (nil when it has nothing) with what we bring. It never decides to replace a newer
// definition, nor one that does not say by its labels that it is of a release we know how to follow.
func Decide(existing *apiextensionsv1.CustomResourceDefinition, ours Definition) Decision {
	if existing == nil {
		return Decision{Create, "not there yet"}
	}
	if existing.DeletionTimestamp != nil {
		return Decision{Refuse, fmt.Sprintf("%s is being deleted, with all its objects: wait until it is gone, then try again",
			existing.Name)}
	}
	want, _ := stampOf(ours.CRD)
	have, known := stampOf(existing)
	if !known || have.family != want.family {
		return decideForeign(existing, ours, want)
	}
	switch have.compare(want) {
	case 1:
		return keepIfServed(existing, ours, fmt.Sprintf("%s is there, newer than our %s", have, want),
			"install a newer version of Seamark")
	case -1:
		return Decision{Update, fmt.Sprintf("from %s to %s", have, want)}
	}
	if sameDefinition(existing, merged(existing, ours.CRD)) {
		return Decision{Keep, fmt.Sprintf("%s is there already", have)}
	}
	if want.family == familyMCS && serves(existing, ours) {
		return Decision{Keep, fmt.Sprintf("%s is there, with changes somebody made to it", have)}
	}
	return Decision{Update, fmt.Sprintf("%s is there, but differs from ours: put back", have)}
}

// decideForeign is about a definition without a label that says which release it is.
func decideForeign(existing *apiextensionsv1.CustomResourceDefinition, ours Definition, want stamp) Decision {
	if existing.Spec.Group == v1alpha1.GroupVersion.Group {
		return Decision{Update, fmt.Sprintf("from one without a revision to %s", want)}
	}
	label := v1alpha1.LabelSchemaRevision + "=0"
	if want.family == familyMCS {
		label = mcscrd.ReleaseVersionLabel + "=v0.0.0"
	}
	return keepIfServed(existing, ours, "somebody else installed it, and it serves what is needed",
		fmt.Sprintf("upgrade what installed it, or hand it over to Seamark with: kubectl label --overwrite crd %s %s",
			existing.Name, label))
}

func keepIfServed(existing *apiextensionsv1.CustomResourceDefinition, ours Definition, reason, remedy string) Decision {
	if serves(existing, ours) {
		return Decision{Keep, reason}
	}
	var served []string
	for _, v := range existing.Spec.Versions {
		if v.Served {
			served = append(served, v.Name)
		}
	}
	return Decision{Refuse, fmt.Sprintf("%s is not ours to change and serves %s (%s), while Seamark needs %s (%s): %s",
		existing.Name, strings.Join(served, ", "), existing.Spec.Scope,
		strings.Join(ours.AnyOf, " or "), ours.CRD.Spec.Scope, remedy)}
}

func serves(existing *apiextensionsv1.CustomResourceDefinition, ours Definition) bool {
	return existing.Spec.Scope == ours.CRD.Spec.Scope && existing.Spec.Names.Kind == ours.CRD.Spec.Names.Kind &&
		slices.ContainsFunc(existing.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Served && slices.Contains(ours.AnyOf, v.Name)
		})
}

// family tells whose numbering a stamp follows.
type family string

const (
	familyMCS     family = "MCS API"
	familySeamark family = "Seamark"
)

// stamp is how new a definition says it is.
type stamp struct {
	family   family
	release  *version.Version // MCS API only
	revision int
}

// stampOf reads the labels; false when there is none, or one that cannot be read.
func stampOf(crd *apiextensionsv1.CustomResourceDefinition) (stamp, bool) {
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

// compare is 1 when s is newer than o, -1 when older. Both are of one family.
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

// String names the stamp as people know it: "MCS API v0.5.2 (schema revision 0)".
func (s stamp) String() string {
	if s.release == nil {
		return fmt.Sprintf("schema revision %d", s.revision)
	}
	return fmt.Sprintf("%s v%s (schema revision %d)", s.family, s.release, s.revision)
}

// merged is ours in place of existing, with what must survive: labels and annotations of others, a conversion webhook, and
// versions in which objects are still stored (the API server refuses to forget those).
func merged(existing, ours *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	result := existing.DeepCopy()
	result.Labels = overlay(existing.Labels, ours.Labels)
	result.Annotations = overlay(existing.Annotations, ours.Annotations)
	result.Spec = *ours.Spec.DeepCopy()
	if c := existing.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		result.Spec.Conversion = c.DeepCopy()
	}
	for _, v := range existing.Spec.Versions {
		mine := slices.ContainsFunc(ours.Spec.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return o.Name == v.Name
		})
		if !mine && slices.Contains(existing.Status.StoredVersions, v.Name) {
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

// sameDefinition compares what an update would change. Through JSON, because defaults in schemas are raw text that may be
// spaced in another way.
func sameDefinition(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		reflect.DeepEqual(plain(a.Spec), plain(b.Spec))
}

func plain(spec apiextensionsv1.CustomResourceDefinitionSpec) any {
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
