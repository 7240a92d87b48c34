package objects

import (
	"strings"
)

// Unsettled tells the refusals of an API server that does not know yet the kind of a policy's parameter: it has just started, or the kind is
// new. They have no reason code of their own.
func IsPolicyNotReady(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to configure policy")
}
