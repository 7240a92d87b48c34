package bridge

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/daemon/kinds"
)

// Names of the indexes of Lighthouse's broker.
const (
	byService = "bridge.service"
	byForeign = "bridge.foreign-cluster"
	byBridged = "bridge.bridged-cluster"
)

// newScheme returns a scheme with every kind that the bridge reads or writes. Lighthouse has the
// MCS API in v1alpha1, Seamark in v1beta1.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(
		clientgoscheme.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install, v1alpha1.AddToScheme,
	)
	return scheme, builder.AddToScheme(scheme)
}

// newMapper returns a mapper of the same kinds.
func newMapper() meta.RESTMapper {
	mapper := kinds.NewMapper()
	mapper.Add(corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "Secret", "ServiceAccount")
	mapper.Add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Namespace")
	mapper.Add(discoveryv1.SchemeGroupVersion, meta.RESTScopeNamespace, "EndpointSlice")
	mapper.Add(coordinationv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Lease")
	mapper.Add(mcsv1alpha1.SchemeGroupVersion, meta.RESTScopeNamespace, "ServiceImport")
	mapper.Add(mcsv1beta1.SchemeGroupVersion, meta.RESTScopeNamespace, "ServiceImport")
	mapper.Add(v1alpha1.GroupVersion, meta.RESTScopeNamespace, "ClusterSet", "Cluster", "ExportRecord")
	return mapper
}

func staticMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil }

// seamarkCache returns the options of the cache of Seamark's broker. It holds the records of all
// clusters, because they decide together, and the slices of those that the bridge is for.
func (b *bridge) seamarkCache(namespace string) cache.Options {
	clusters := slices.Concat(b.LighthouseClusters, b.SeamarkClusters)
	from, err := labels.NewRequirement(mcsv1beta1.LabelSourceCluster, selection.In, clusters)
	if err != nil {
		panic(err) // Validate has checked the ids
	}
	return cache.Options{
		Scheme: b.scheme, Mapper: newMapper(), DefaultTransform: stripManagedFields,
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject:          map[client.Object]cache.ByObject{&discoveryv1.EndpointSlice{}: {Label: labels.NewSelector().Add(*from)}},
	}
}

// lighthouseCache returns the options of the cache of Lighthouse's broker.
func (b *bridge) lighthouseCache(namespace string) cache.Options {
	managed := labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: managedByLighthouse})
	return cache.Options{
		Scheme: b.scheme, Mapper: newMapper(), DefaultTransform: stripManagedFields,
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject:          map[client.Object]cache.ByObject{&discoveryv1.EndpointSlice{}: {Label: managed}},
	}
}

func stripManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// addIndexes registers the indexes of both caches.
func (b *bridge) addIndexes(ctx context.Context) error {
	if err := index.AddBroker(ctx, index.Indexer{Cache: b.seamark, AllNamespaces: true}); err != nil {
		return err
	}
	indexer := index.Indexer{Cache: b.lighthouse, AllNamespaces: true}
	service := func(obj client.Object) []string {
		if key, ok := lighthouseService(obj); ok && !isAggregate(obj) {
			return []string{key.String()}
		}
		return nil
	}
	ofCluster := func(bridged bool) client.IndexerFunc {
		return func(obj client.Object) []string {
			if cluster := sourceCluster(obj); cluster != "" && isBridged(obj) == bridged {
				return []string{cluster}
			}
			return nil
		}
	}
	for _, kind := range []client.Object{&mcsv1alpha1.ServiceImport{}, &discoveryv1.EndpointSlice{}} {
		for name, values := range map[string]client.IndexerFunc{byService: service, byForeign: ofCluster(false), byBridged: ofCluster(true)} {
			if err := indexer.IndexField(ctx, kind, name, values); err != nil {
				return fmt.Errorf("index %T of Lighthouse's broker: %w", kind, err)
			}
		}
	}
	return nil
}

// readState returns what Lighthouse's broker has of a service.
func (b *bridge) readState(ctx context.Context, key types.NamespacedName) (State, error) {
	var s State
	imports, endpoints := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	of := client.MatchingFields{byService: key.String()}
	if err := b.lighthouse.List(ctx, imports, of); err != nil {
		return s, fmt.Errorf("list ServiceImports of %s on Lighthouse's broker: %w", key, err)
	}
	if err := b.lighthouse.List(ctx, endpoints, of); err != nil {
		return s, fmt.Errorf("list EndpointSlices of %s on Lighthouse's broker: %w", key, err)
	}
	for i := range imports.Items {
		s.Imports = append(s.Imports, &imports.Items[i])
	}
	for i := range endpoints.Items {
		s.Slices = append(s.Slices, &endpoints.Items[i])
	}
	var err error
	name := types.NamespacedName{Namespace: b.lighthouseNamespace, Name: aggregateName(key)}
	s.Aggregate, err = index.GetOrNil(ctx, b.lighthouse, name, &mcsv1alpha1.ServiceImport{})
	return s, err
}

// foreign returns an object on Lighthouse's broker that belongs to a cluster and that no bridge
// wrote, nil if there is none.
func (b *bridge) foreign(ctx context.Context, cluster string) (client.Object, error) {
	imports, endpoints := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	of := client.MatchingFields{byForeign: cluster}
	if err := b.lighthouse.List(ctx, imports, of, client.UnsafeDisableDeepCopy, client.Limit(1)); err != nil {
		return nil, fmt.Errorf("list ServiceImports of cluster %s on Lighthouse's broker: %w", cluster, err)
	}
	if err := b.lighthouse.List(ctx, endpoints, of, client.UnsafeDisableDeepCopy, client.Limit(1)); err != nil {
		return nil, fmt.Errorf("list EndpointSlices of cluster %s on Lighthouse's broker: %w", cluster, err)
	}
	switch {
	case len(imports.Items) > 0:
		return &imports.Items[0], nil
	case len(endpoints.Items) > 0:
		return &endpoints.Items[0], nil
	}
	return nil, nil //nolint:nilnil // documented
}

// services returns all services that either broker has.
func (b *bridge) services(ctx context.Context) ([]types.NamespacedName, error) {
	seen := map[types.NamespacedName]bool{}
	records, imports, endpoints := &v1alpha1.ExportRecordList{}, &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	if err := b.seamark.List(ctx, records, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the records of Seamark's broker: %w", err)
	}
	if err := b.lighthouse.List(ctx, imports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the ServiceImports of Lighthouse's broker: %w", err)
	}
	if err := b.lighthouse.List(ctx, endpoints, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of Lighthouse's broker: %w", err)
	}
	for i := range records.Items {
		seen[types.NamespacedName{Namespace: records.Items[i].Spec.ServiceNamespace, Name: records.Items[i].Spec.ServiceName}] = true
	}
	add := func(obj client.Object) {
		if key, ok := lighthouseService(obj); ok {
			seen[key] = true
		}
	}
	for i := range imports.Items {
		add(&imports.Items[i])
	}
	for i := range endpoints.Items {
		add(&endpoints.Items[i])
	}
	out := make([]types.NamespacedName, 0, len(seen))
	for key := range seen {
		out = append(out, key)
	}
	return out, nil
}
