package objects

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Unsettled tells the refusals of an API server that does not know yet the kind of a policy's parameter: it has just started, or the kind is
// new. They have no reason code of their own.
func IsPolicyNotReady(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to configure policy")
}

// IsWriteConflict reports whether a write failed because another client wrote first. The watch shows
// what that client wrote, and the next reconcile decides on it.
func IsWriteConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
