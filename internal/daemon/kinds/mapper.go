package kinds

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapper maps kinds without discovery: a daemon must be able to start while its broker is
// unreachable, and discovery of a whole API server is a few hundred kilobytes for a dozen kinds.
type Mapper struct{ *meta.DefaultRESTMapper }

// NewMapper returns a Mapper without kinds.
func NewMapper() Mapper { return Mapper{meta.NewDefaultRESTMapper(nil)} }

// Add adds kinds of a group and version.
func (m Mapper) Add(gv schema.GroupVersion, scope meta.RESTScope, kinds ...string) {
	for _, kind := range kinds {
		plural, singular := meta.UnsafeGuessKindToResource(gv.WithKind(kind))
		m.AddSpecific(gv.WithKind(kind), plural, singular, scope)
		// A client that lists looks up the kind of the list.
		m.AddSpecific(gv.WithKind(kind+"List"), plural, singular, scope)
	}
}
