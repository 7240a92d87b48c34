package survey

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// GetIfServed reads an object into obj and returns it. It returns nil if the object or its kind
// does not exist.
func GetIfServed[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, obj T) (T, error) {
	var none T
	err := c.Get(ctx, key, obj)
	switch {
	case err == nil:
		return obj, nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return none, nil
	}
	return none, err
}
