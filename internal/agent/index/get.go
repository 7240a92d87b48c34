package index

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// GetOrNil reads an object into obj and returns it, or nil if there is none.
func GetOrNil[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, obj T) (T, error) {
	err := c.Get(ctx, key, obj)
	if err == nil {
		return obj, nil
	}
	var none T
	if client.IgnoreNotFound(err) == nil {
		return none, nil
	}
	return none, fmt.Errorf("read %s %s: %w", reflect.TypeOf(obj).Elem().Name(), key, err)
}
