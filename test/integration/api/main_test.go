// Package api tests what the API server itself enforces: the schemas and rules of every kind, how CustomResourceDefinitions are
// installed beside those of others, and the admission policies that confine members and guard identity. All of it against
// real API servers.
package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1alpha1 "github.com/seamark-dev/seamark/api/about/v1alpha1"
	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := harness.Scheme()
	for _, add := range []func(*runtime.Scheme) error{
		aboutv1beta1.AddToScheme, aboutv1alpha1.AddToScheme, claimsv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// served returns the shared control plane with all kinds of both sets installed, and an admin's client.
func served(t testing.TB) (*controlplane.ControlPlane, client.Client) {
	t.Helper()
	cp := harness.Clusters(t, 1)[0]
	c := newClient(t, cp.Config())
	install(t, c, crds.Broker, crds.Member)
	return cp, c
}

func install(t testing.TB, c client.Client, sets ...crds.Set) {
	t.Helper()
	for _, set := range sets {
		if _, err := crds.Install(t.Context(), c, set); err != nil {
			t.Fatal(err)
		}
	}
}

// object parses JSON: what a person would send, types of Go aside.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// edit is one change to a good object: the field at path becomes value (JSON), or goes when value is empty.
type edit struct{ path, value string }

func (e edit) apply(t testing.TB, o *unstructured.Unstructured) {
	t.Helper()
	path := strings.Split(e.path, "/")
	if e.value == "" {
		unstructured.RemoveNestedField(o.Object, path...)
		return
	}
	var value any
	decoder := json.NewDecoder(strings.NewReader(`{"v":` + e.value + `}`))
	wrapped := map[string]any{}
	if err := decoder.Decode(&wrapped); err != nil {
		t.Fatalf("%s: %v", e.value, err)
	}
	value = wholeNumbers(wrapped["v"])
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// wholeNumbers turns float64 into int64, the only number that unstructured objects copy without loss.
func wholeNumbers(value any) any {
	switch v := value.(type) {
	case float64:
		return int64(v)
	case map[string]any:
		for k := range v {
			v[k] = wholeNumbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = wholeNumbers(v[i])
		}
	}
	return value
}

// variant is a good object with edits, and what the API server must say about it: nothing when it is good.
type variant struct {
	why   string
	edits []edit
	want  string
}

// create tries every variant of a good object without storing any.
func create(t *testing.T, c client.Client, good func() *unstructured.Unstructured, variants []variant) {
	t.Helper()
	for _, v := range variants {
		t.Run(v.why, func(t *testing.T) {
			o := good()
			for _, e := range v.edits {
				e.apply(t, o)
			}
			check(t, c.Create(t.Context(), o, client.DryRunAll), v.want)
		})
	}
}

// update stores a good object and tries every variant as its next state.
func update(t *testing.T, c client.Client, good *unstructured.Unstructured, variants []variant) {
	t.Helper()
	if err := c.Create(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		t.Run(v.why, func(t *testing.T) {
			o := good.DeepCopy()
			for _, e := range v.edits {
				e.apply(t, o)
			}
			check(t, c.Update(t.Context(), o, client.DryRunAll), v.want)
		})
	}
}

// check compares an answer with the fragment the refusal must hold; an empty fragment means that it must be accepted.
func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted; want a refusal with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with\n  %v\nwant\n  %s", err, want)
	case want != "" && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		t.Errorf("refused, but as %s: %v", apierrors.ReasonForError(err), err)
	}
}

// ports renders n ports with distinct names and numbers.
func ports(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"name":"port-%058d","port":%d}`, i, i+1))
	}
	return "[" + strings.Join(all, ",") + "]"
}

func namesOf(outcomes []crds.Outcome, action crds.Action) []string {
	var names []string
	for _, o := range outcomes {
		if o.Action == action {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	return names
}
