// Package adopt writes objects that belong to the release of the chart in the name of helm. Helm
// then takes them into the release, and changes them later, without a flag.
package adopt

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/seamark-dev/seamark/internal/objects"
)

// FieldManager is helm's name in server-side apply.
const FieldManager = "helm"

// Apply creates or changes an object by server-side apply, as helm. It marks the object as part of
// the release, and takes over fields that another client wrote.
func Apply(ctx context.Context, c client.Client, obj client.Object) error {
	kind, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("convert %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	applied := &unstructured.Unstructured{Object: content}
	applied.SetGroupVersionKind(kind)
	applied.SetManagedFields(nil)
	applied.SetResourceVersion("")
	applied.SetUID("")
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	objects.AllowHelm(applied)
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(FieldManager), client.ForceOwnership)
}
