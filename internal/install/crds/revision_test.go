package crds

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// TestSchemaRevisions fails if a schema changed and its revision did not: an older Seamark could
// replace the newer schema with its own. Raise seamark.dev/schema-revision in the markers of the
// type, run make generate, and write the new lines to testdata/revisions.txt.
func TestSchemaRevisions(t *testing.T) {
	text, err := os.ReadFile("testdata/revisions.txt")
	if err != nil {
		t.Fatal(err)
	}
	recorded := strings.Split(strings.TrimSpace(string(text)), "\n")
	var found []string
	for _, set := range []Set{Broker, Member} {
		definitions, err := Definitions(set)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range definitions {
			if revision, ok := d.CRD.Labels[v1alpha1.LabelSchemaRevision]; ok {
				found = append(found, fmt.Sprintf("%s %s %x", d.CRD.Name, revision, digest(t, d)))
			}
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, recorded) {
		t.Errorf("schemas changed; raise their revision, then record:\n%s", strings.Join(found, "\n"))
	}
}

// digest leaves descriptions out: a change of wording does not need a new revision.
func digest(t *testing.T, d Definition) []byte {
	t.Helper()
	spec := asJSON(d.CRD.Spec)
	dropDescriptions(spec)
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return sum[:12]
}

func dropDescriptions(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, ok := v["description"].(string); ok {
			delete(v, "description")
		}
		for _, inner := range v {
			dropDescriptions(inner)
		}
	case []any:
		for _, inner := range v {
			dropDescriptions(inner)
		}
	}
}
