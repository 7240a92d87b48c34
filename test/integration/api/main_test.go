// Package api tests what API servers enforce: the schemas and rules of every kind, the installation
// of CRDs beside those of other tools, and the admission policies that confine members and guard
// identity. It uses real API servers.
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

// served returns the shared control plane with all kinds of both sets installed, and an admin's
// client.
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

// object parses JSON as a user would send it, independently of Go types.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// edit is one change of a good object: the field at path is set to value (JSON), or removed if
// value is empty.
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

// wholeNumbers converts float64 to int64, the only number type that unstructured objects copy
// without loss.
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

// variant is a good object with edits, and a part of the expected error: empty if it must be
// accepted.
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

// check compares an error with a part of the expected one. If that is empty, there must be no
// error.
func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("rejected: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted; want an error with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("rejected with\n  %v\nwant\n  %s", err, want)
	case want != "" && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		t.Errorf("rejected, but as %s: %v", apierrors.ReasonForError(err), err)
	}
}

// ports returns JSON of n ports with distinct names and numbers.
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
