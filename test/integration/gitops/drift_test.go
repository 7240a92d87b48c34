package gitops_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/test/harness"
)

// Nothing that the chart can install differs from what the API server makes of it, so a tool that
// applied it has nothing to do.
func TestOptionsMakeNoDrift(t *testing.T) {
	c := memberOf(t, harness.Fresh(t, 1)[0], "east").Client
	for name, values := range map[string]map[string]any{
		"nftables": {
			"dataPlane": "nftables", "createNamespaces": true, "profiling": true, "logLevel": "debug", "enableClusterSetIP": false,
			"networkPolicy": map[string]any{"enabled": true}, "clusterDNS": map[string]any{"configure": false},
			"metrics":     map[string]any{"readers": []any{map[string]any{"namespace": "monitoring", "name": "prometheus"}}},
			"tolerations": []any{map[string]any{"key": "dedicated", "operator": "Exists"}},
			"image":       map[string]any{"pullSecrets": []any{"registry"}},
			"dns":         map[string]any{"locality": []any{"headless"}, "fallthrough": []any{"example.org"}, "upstreams": []any{"10.0.0.10"}},
		},
		"none": {"dataPlane": "none", "beacon": map[string]any{"enabled": false}, "priorityClassName": "system-cluster-critical"},
	} {
		manifests := rendered(t, values)
		apply(t, c, manifests, client.ForceOwnership) // the values of the other one
		if changes := drift(t, c, manifests); len(changes) > 0 {
			t.Errorf("%s: %s", name, strings.Join(changes, "\n"))
		}
	}
}

// drift returns what a GitOps tool would report: objects that server-side apply, as a dry run by
// another field manager and without force, would change or could not write.
func drift(t *testing.T, c client.Client, objs []*unstructured.Unstructured) (changes []string) {
	t.Helper()
	const another = "another-tool"
	for _, obj := range objs {
		name := obj.GetKind() + " " + obj.GetName()
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(obj.GroupVersionKind())
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(obj), live); err != nil {
			changes = append(changes, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		planned := obj.DeepCopy()
		err := c.Patch(context.Background(), planned, client.Apply, client.FieldOwner(another), client.DryRunAll) //nolint:staticcheck // see below
		// client.Client.Apply has no dry run that returns the object.
		if apierrors.IsConflict(err) {
			changes = append(changes, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if err != nil {
			t.Fatalf("dry run of %s: %v", name, err)
		}
		for _, o := range []*unstructured.Unstructured{live, planned} {
			o.SetManagedFields(nil)
		}
		if diff := cmp.Diff(live.Object, planned.Object); diff != "" {
			changes = append(changes, name+": "+diff)
		}
	}
	return changes
}
