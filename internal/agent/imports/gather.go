package imports

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/objects"
)

// imported is what this cluster holds of a service.
type imported struct {
	serviceImport *mcsv1beta1.ServiceImport
	// derived is the Service with the name of the derived Service. It may not be managed by Seamark.
	derived *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (r *Reconciler) existing(ctx context.Context, key types.NamespacedName) (imported, error) {
	var have imported
	si := &mcsv1beta1.ServiceImport{}
	err := r.Local.Get(ctx, key, si)
	if client.IgnoreNotFound(err) != nil {
		return have, fmt.Errorf("read ServiceImport %s: %w", key, err)
	}
	if err == nil {
		have.serviceImport = si
	}
	svc := &corev1.Service{}
	err = r.Local.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: objects.DerivedServiceName(key.Name)}, svc)
	if client.IgnoreNotFound(err) != nil {
		return have, fmt.Errorf("read the derived Service of %s: %w", key, err)
	}
	if err == nil {
		have.derived = svc
	}
	have.slices, err = index.ImportedSlices(ctx, r.Local, key)
	return have, err
}

// gather reads everything that Decide needs.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName, settings Settings, have imported) (Input, error) {
	in := Input{
		Settings: settings, Service: key, Existing: have.serviceImport, Derived: have.derived,
		Stale: r.Stale(), IsNodeAddress: r.IsNodeAddress, IsNode: r.IsNode,
		HasOlderClaim: func(addr netip.Addr) bool { return index.HasOlderClaim(ctx, r.Broker, addr, key) },
	}
	var err error
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil || len(in.Records) == 0 {
		return in, err
	}
	if in.Slices, err = index.BrokerSlices(ctx, r.Broker, key); err != nil {
		return in, err
	}
	if in.Aggregate, err = r.aggregate(ctx, key); err != nil {
		return in, err
	}
	if slices.ContainsFunc(in.Records, func(rec *v1alpha1.ExportRecord) bool { return string(rec.Spec.ClusterID) == settings.ClusterID }) {
		in.Own, err = r.own(ctx, key, settings.ClusterID)
	}
	return in, err
}

// aggregate returns the ServiceImport on the broker, or nil.
func (r *Reconciler) aggregate(ctx context.Context, key types.NamespacedName) (*mcsv1beta1.ServiceImport, error) {
	aggregate := &mcsv1beta1.ServiceImport{}
	err := r.Broker.Get(ctx, types.NamespacedName{Namespace: r.BrokerNamespace, Name: objects.AggregateName(key)}, aggregate)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the aggregate of %s: %w", key, err)
	}
	return aggregate, nil
}

// own reads what this cluster itself has of a service that it exports.
func (r *Reconciler) own(ctx context.Context, key types.NamespacedName, clusterID string) (exports.Input, error) {
	own := exports.Input{
		Settings: exports.Settings{ClusterID: clusterID, BrokerNamespace: r.BrokerNamespace}, RegionOf: r.RegionOf,
	}
	svc := &corev1.Service{}
	if err := r.Local.Get(ctx, key, svc); err != nil {
		return own, client.IgnoreNotFound(err)
	}
	export := &mcsv1beta1.ServiceExport{}
	if err := r.Local.Get(ctx, key, export); client.IgnoreNotFound(err) != nil {
		return own, err
	}
	own.Service, own.Export = svc, export
	var err error
	own.Slices, err = index.SourceSlices(ctx, r.Local, key)
	return own, err
}

// namespaceReady reports whether services can be imported into a namespace.
func (r *Reconciler) namespaceReady(ctx context.Context, name string) (bool, error) {
	ns := &corev1.Namespace{}
	err := r.Local.Get(ctx, types.NamespacedName{Name: name}, ns)
	if apierrors.IsNotFound(err) && r.CreateNamespaces {
		ns.Name = name
		ns.Labels = map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}
		if err := r.Local.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("create namespace %s for its imports: %w", name, err)
		}
		return true, nil
	}
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return ns.DeletionTimestamp == nil, nil
}
