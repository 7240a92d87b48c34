package member

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// IdentityReconciler restores identity objects that were changed or deleted while the cluster is a
// member, and publishes the clusterset's ranges.
type IdentityReconciler struct {
	Local      client.Client
	Membership objects.Membership
	// StillMember reports whether the membership Secret exists and does not say that the cluster
	// was removed: leaving deletes it before the identity, and a removed agent marks it before.
	StillMember func(ctx context.Context) (bool, error)
	// Ranges returns the clusterset's ranges, none until they are known. The last known ones stay
	// published.
	Ranges func() []v1alpha1.CIDR
	// CheckUnreachable is called when the property that lists unreachable clusters may have changed.
	CheckUnreachable func(ctx context.Context) error
}

// Reconcile checks all identity objects, whichever changed: they are few.
func (r *IdentityReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	member, err := r.StillMember(ctx)
	if err != nil || !member {
		return ctrl.Result{}, err
	}
	wanted := objects.Identity(r.Membership)
	if ranges := r.Ranges(); len(ranges) > 0 {
		wanted = append(wanted, objects.RangesProperty(ranges))
	}
	for _, want := range wanted {
		if err := r.ensure(ctx, want); err != nil {
			return ctrl.Result{}, fmt.Errorf("restore identity object %s: %w", want.GetName(), err)
		}
	}
	return ctrl.Result{}, r.CheckUnreachable(ctx)
}

func (r *IdentityReconciler) ensure(ctx context.Context, want client.Object) error {
	have, ok := want.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	err := r.Local.Get(ctx, types.NamespacedName{Name: want.GetName()}, have)
	if apierrors.IsNotFound(err) {
		err = r.Local.Create(ctx, want)
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache is behind
		}
		return err
	}
	if err != nil || objects.IdentityValue(have) == objects.IdentityValue(want) {
		return err
	}
	switch typed := have.(type) {
	case *aboutv1beta1.ClusterProperty:
		typed.Spec.Value = objects.IdentityValue(want)
	case *claimsv1.ClusterClaim:
		typed.Spec.Value = objects.IdentityValue(want)
	}
	return r.Local.Update(ctx, have)
}
