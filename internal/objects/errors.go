package objects

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrClusterIDTaken means that another cluster uses this cluster's id.
var ErrClusterIDTaken = errors.New("the cluster id is used by another cluster")

// IsPolicyNotReady reports whether an API server denied a request because it does not know the kind
// of a policy's parameter yet: it has just started, or the CRD is new. Such errors have no reason
// of their own, so the message decides.
func IsPolicyNotReady(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to configure policy")
}

// IsWriteConflict reports whether a write failed because another client wrote first. The watch
// shows what that client wrote, and the next reconcile decides on it.
func IsWriteConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
