package brokeradmin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Action is what a command did with an object.
type Action string

// Actions of a command.
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Deleted   Action = "deleted"
)

// Step is what a command did with one object.
type Step struct {
	Object string `json:"object"`
	Action Action `json:"action"`
}

// ensure creates obj, or lets adjust change the object that exists. Nothing is written unless
// adjust reports that it changed the object. On return obj is what the API server has.
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
		if apierrors.IsAlreadyExists(err) { // another client was faster: adjust what it created
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

// deleteWithRetry deletes an object. It retries while the API server cannot evaluate its policies
// yet.
func deleteWithRetry(ctx context.Context, c client.Client, obj client.Object, o ...client.DeleteOption) error {
	return retryUntilPoliciesReady(ctx, func(ctx context.Context) error { return c.Delete(ctx, obj, o...) })
}

// absent reports whether err means that an object does not exist or that its kind is not installed.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func describe(c client.Client, obj client.Object) string {
	kind := "object"
	if gvk, err := apiutil.GVKForObject(obj, c.Scheme()); err == nil {
		kind = gvk.Kind
	}
	return kind + " " + obj.GetName()
}
