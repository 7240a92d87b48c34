package imports

import (
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// leavesImport reports whether the ServiceImport is left to the agent of Submariner Lighthouse. One
// that Seamark manages stays Seamark's, unless the cluster is on its way back: Lighthouse's agent
// takes it over by two writes, status first, and a write of Seamark's between them would make the
// second fail.
func (in Input) leavesImport() bool {
	switch {
	case !in.Migration.LeavesObjects():
		return false
	case in.Existing == nil:
		return in.Migration == v1alpha1.MigrationShadow
	case in.Migration == v1alpha1.MigrationReturning:
		return true
	}
	return !objects.IsManagedImport(in.Existing)
}
