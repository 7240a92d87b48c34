// Package index finds the objects of a service in the caches without iterating over all of them.
package index

import (
	"context"
	"crypto/rand"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Names of the indexes.
const (
	bySourceService   = "seamark.source-service"
	byImportedService = "seamark.imported-service"
	byBrokerService   = "seamark.broker-service"
	byNamespace       = "seamark.service-namespace"
	byClusterSetIP    = "seamark.clusterset-ip"
)

// AddLocal registers the indexes of a member's own API server.
func AddLocal(ctx context.Context, indexer client.FieldIndexer) error {
	bySlice := func(of func(*discoveryv1.EndpointSlice) (types.NamespacedName, bool)) client.IndexerFunc {
		return func(obj client.Object) []string {
			s, ok := obj.(*discoveryv1.EndpointSlice)
			if !ok {
				return nil
			}
			if service, ok := of(s); ok {
				return []string{service.Name}
			}
			return nil
		}
	}
	if err := indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, bySourceService, bySlice(objects.SourceService)); err != nil {
		return fmt.Errorf("index EndpointSlices by Service: %w", err)
	}
	if err := indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, byImportedService, bySlice(objects.ImportedService)); err != nil {
		return fmt.Errorf("index EndpointSlices by import: %w", err)
	}
	return nil
}

// AddBroker registers the indexes of the broker.
func AddBroker(ctx context.Context, indexer client.FieldIndexer) error {
	byLabels := func(obj client.Object) []string {
		if service, ok := objects.ServiceOf(obj); ok {
			return []string{service.String()}
		}
		return nil
	}
	for _, kind := range []client.Object{&v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}} {
		if err := indexer.IndexField(ctx, kind, byBrokerService, byLabels); err != nil {
			return fmt.Errorf("index %T of the broker by service: %w", kind, err)
		}
	}
	namespaces := func(obj client.Object) []string {
		if service, ok := objects.ServiceOf(obj); ok {
			return []string{service.Namespace}
		}
		return nil
	}
	if err := indexer.IndexField(ctx, &v1alpha1.ExportRecord{}, byNamespace, namespaces); err != nil {
		return fmt.Errorf("index records by the namespace of their service: %w", err)
	}
	byIPs := func(obj client.Object) []string {
		if r, ok := obj.(*v1alpha1.ExportRecord); ok {
			return r.Spec.ClusterSetIPs
		}
		return nil
	}
	if err := indexer.IndexField(ctx, &v1alpha1.ExportRecord{}, byClusterSetIP, byIPs); err != nil {
		return fmt.Errorf("index records by clusterset IP: %w", err)
	}
	return nil
}

// RecordsOf selects the records of the services of a namespace.
func RecordsOf(namespace string) client.MatchingFields {
	return client.MatchingFields{byNamespace: namespace}
}

// Claims returns the records of all services that claim a clusterset IP. They share memory with the
// cache.
func Claims(ctx context.Context, c client.Reader, ip string) ([]*v1alpha1.ExportRecord, error) {
	var list v1alpha1.ExportRecordList
	if err := c.List(ctx, &list, client.MatchingFields{byClusterSetIP: ip}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list records that claim %s: %w", ip, err)
	}
	return valid(list.Items, objects.CheckRecord), nil
}

// SourceSlices returns the EndpointSlices of a Service of this cluster.
func SourceSlices(ctx context.Context, local client.Reader, service types.NamespacedName) ([]*discoveryv1.EndpointSlice, error) {
	return localSlices(ctx, local, service, bySourceService)
}

// ImportedSlices returns the EndpointSlices that this cluster has for an imported service.
func ImportedSlices(ctx context.Context, local client.Reader, service types.NamespacedName) ([]*discoveryv1.EndpointSlice, error) {
	return localSlices(ctx, local, service, byImportedService)
}

func localSlices(
	ctx context.Context, local client.Reader, service types.NamespacedName, index string,
) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := local.List(ctx, &list, client.InNamespace(service.Namespace), client.MatchingFields{index: service.Name}); err != nil {
		return nil, fmt.Errorf("list EndpointSlices of %s: %w", service, err)
	}
	return pointers(list.Items), nil
}

// Records returns all clusters' records of a service. Those whose name and content disagree are
// left out: see objects.CheckRecord.
func Records(ctx context.Context, c client.Reader, service types.NamespacedName) ([]*v1alpha1.ExportRecord, error) {
	var list v1alpha1.ExportRecordList
	if err := c.List(ctx, &list, client.MatchingFields{byBrokerService: service.String()}); err != nil {
		return nil, fmt.Errorf("list records of %s: %w", service, err)
	}
	return valid(list.Items, objects.CheckRecord), nil
}

// BrokerSlices returns all clusters' slices of a service on the broker, without those whose name
// and labels disagree.
func BrokerSlices(ctx context.Context, c client.Reader, service types.NamespacedName) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := c.List(ctx, &list, client.MatchingFields{byBrokerService: service.String()}); err != nil {
		return nil, fmt.Errorf("list EndpointSlices of %s on the broker: %w", service, err)
	}
	return valid(list.Items, objects.CheckSlice), nil
}

// valid returns pointers to the items that pass check and whose content was not dropped.
func valid[T any, P interface {
	*T
	client.Object
}](items []T, check func(*T) error) []*T {
	out := make([]*T, 0, len(items))
	for i := range items {
		if check(&items[i]) == nil && !IsDropped(P(&items[i])) {
			out = append(out, &items[i])
		}
	}
	return out
}

// annotationDropped marks a cached object without its content. Its value is droppedMark, so that no
// member can set it on the broker.
const annotationDropped = "cache.seamark.dev/dropped"

var droppedMark = rand.Text()

// MarkDropped marks a cached object whose content was dropped. The functions of this package leave
// it out.
func MarkDropped(obj client.Object) {
	obj.SetAnnotations(map[string]string{annotationDropped: droppedMark})
}

// IsDropped reports whether the content of a cached object was dropped.
func IsDropped(obj client.Object) bool { return obj.GetAnnotations()[annotationDropped] == droppedMark }

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
