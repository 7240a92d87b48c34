package objects

import (
	"errors"
	"strings"
)

// ErrClusterIDTaken means that another cluster uses this cluster's id.
var ErrClusterIDTaken = errors.New("the cluster id is used by another cluster")

// IsPolicyNotReady reports whether an API server denied a request because it does not know the kind
// of a policy's parameter yet: it has just started, or the CRD is new. Such errors have no reason
// of their own, so the message decides.
func IsPolicyNotReady(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to configure policy")
}
