package brokeradmin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Action is what became of an object.
type Action string

// What can become of an object.
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Deleted   Action = "deleted"
)

// Step is one object that a command saw to.
type Step struct {
	Object string `json:"object"`
	Action Action `json:"action"`
}

// ensure creates obj, or lets adjust change what is there. Adjust tells whether it changed anything; when not, nothing is
// written. On return obj is what the server has.
func ensure[T client.Object](ctx context.Context, c client.Client, obj T, adjust func(have T) bool) (Step, error) {
	step := Step{Object: describe(c, obj), Action: Unchanged}
	key := client.ObjectKeyFromObject(obj)
	want := obj.DeepCopyObject().(T)
	err := c.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		step.Action = Created
		err = c.Create(ctx, want)
		if err == nil {
			return step, c.Get(ctx, key, obj)
		}
		if apierrors.IsAlreadyExists(err) { // somebody else was faster: see whether it is as it should be
			step.Action, err = Unchanged, c.Get(ctx, key, obj)
		}
	}
	if err != nil {
		return step, fmt.Errorf("%s: %w", step.Object, err)
	}
	if step.Action == Unchanged && adjust != nil && adjust(obj) {
		step.Action = Updated
		if err := c.Update(ctx, obj); err != nil {
			return step, fmt.Errorf("%s: %w", step.Object, err)
		}
	}
	return step, nil
}

// remove deletes an object; one that is not there is as good as deleted, and gives no step.
func deleteObject(ctx context.Context, c client.Client, obj client.Object) ([]Step, error) {
	step := Step{Object: describe(c, obj), Action: Deleted}
	err := deleteWithRetry(ctx, c, obj)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("delete %s: %w", step.Object, err)
	}
	return []Step{step}, nil
}

// deleteSettled deletes an object, also of an API server that cannot evaluate its policies yet.
func deleteWithRetry(ctx context.Context, c client.Client, obj client.Object, o ...client.DeleteOption) error {
	return retryUntilPoliciesReady(ctx, func(ctx context.Context) error { return c.Delete(ctx, obj, o...) })
}

// absent tells that an object, or its kind, is not there.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func describe(c client.Client, obj client.Object) string {
	kind := "object"
	if gvk, err := apiutil.GVKForObject(obj, c.Scheme()); err == nil {
		kind = gvk.Kind
	}
	return kind + " " + obj.GetName()
}
