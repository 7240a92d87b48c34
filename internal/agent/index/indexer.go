package index

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Indexer registers indexes in a cache. The cache's own FieldIndexer stores two keys for each
// value, for lists of one namespace and for lists of all. This one stores the key that is used: at
// thousands of services the others are a twelfth of an agent's memory.
type Indexer struct {
	Cache cache.Cache
	// AllNamespaces is true if lists name no namespace, false if all do.
	AllNamespaces bool
}

var _ client.FieldIndexer = Indexer{}

// The names of controller-runtime's indexes, and the namespace in their keys for lists of all. It
// does not export them. If they change, agents find no records, and no test with API servers
// passes.
const (
	fieldIndexPrefix = "field:"
	allNamespaces    = "__all_namespaces"
)

// IndexField implements client.FieldIndexer.
func (i Indexer) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	informer, err := i.Cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	return informer.AddIndexers(toolscache.Indexers{fieldIndexPrefix + field: func(raw any) ([]string, error) {
		o, ok := raw.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is no object", raw)
		}
		namespace := o.GetNamespace()
		if i.AllNamespaces {
			namespace = allNamespaces
		}
		values := extract(o)
		keys := make([]string, len(values))
		for at, value := range values {
			keys[at] = namespace + "/" + value
		}
		return keys, nil
	}})
}
