package imports

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

func (r *Reconciler) existing(ctx context.Context, key types.NamespacedName) (have imported, err error) {
	if have.serviceImport, err = index.GetOrNil(ctx, r.Local, key, &mcsv1beta1.ServiceImport{}); err != nil {
		return have, err
	}
	derived := types.NamespacedName{Namespace: key.Namespace, Name: objects.DerivedServiceName(key.Name)}
	if have.derived, err = index.GetOrNil(ctx, r.Local, derived, &corev1.Service{}); err != nil {
		return have, err
	}
	have.slices, err = index.ImportedSlices(ctx, r.Local, key)
	return have, err
}

// gather reads everything that Decide needs, and decides which missing clusters are held.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName, settings Settings, have imported) (Input, heldImport, error) {
	read := time.Now()
	in := Input{
		Settings: settings, Service: key, Existing: have.serviceImport, Derived: have.derived,
		Stale: r.Stale(), Demoted: r.Demoted(), Reached: r.Reached(),
		IsNodeAddress: r.IsNodeAddress, IsNode: r.IsNode, WhyNot: r.WhyNot,
		Accepts: r.Accepts(ctx, key), BlockOwner: r.BlockOwner,
	}
	var held heldImport
	var err error
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil {
		return in, held, err
	}
	if held, err = r.Withdrawals.judge(ctx, key, have.serviceImport, in.Records, in.Stale, read); err != nil {
		return in, held, err
	}
	in.Held, in.HeldSlices = held.HeldSources, held.of(have.slices)
	in.Records = slices.DeleteFunc(objects.AdmittedRecords(in.Records, r.ClusterOf), func(rec *v1alpha1.ExportRecord) bool {
		return !r.Admits(string(rec.Spec.ClusterID), key)
	})
	if len(in.Records) == 0 {
		return in, held, nil
	}
	if in.Slices, err = index.BrokerSlices(ctx, r.Broker, key); err != nil {
		return in, held, err
	}
	in.Slices = objects.AdmittedSlices(in.Slices, r.ClusterOf)
	in.Remembered = r.Remembered(ctx, key, in.Records)
	if slices.ContainsFunc(in.Records, func(rec *v1alpha1.ExportRecord) bool { return string(rec.Spec.ClusterID) == settings.ClusterID }) {
		in.Own, err = r.own(ctx, key, settings.ClusterID)
	}
	return in, held, err
}

// own reads what this cluster itself has of a service that it exports.
func (r *Reconciler) own(ctx context.Context, key types.NamespacedName, clusterID string) (exports.Input, error) {
	own := exports.Input{
		Settings: exports.Settings{ClusterID: clusterID, BrokerNamespace: r.BrokerNamespace}, RegionOf: r.RegionOf,
	}
	var err error
	if own.Service, err = index.GetOrNil(ctx, r.Local, key, &corev1.Service{}); err != nil || own.Service == nil {
		return own, err
	}
	if own.Export, err = index.GetOrNil(ctx, r.Local, key, &mcsv1beta1.ServiceExport{}); err != nil {
		return own, err
	}
	own.Slices, err = index.SourceSlices(ctx, r.Local, key)
	return own, err
}

// namespaceReady reports whether services can be imported into a namespace. It creates a missing
// namespace if that is enabled.
func (r *Reconciler) namespaceReady(ctx context.Context, name string) (bool, error) {
	ns, err := index.GetOrNil(ctx, r.Local, types.NamespacedName{Name: name}, &corev1.Namespace{})
	if err != nil || ns != nil {
		return ns != nil && ns.DeletionTimestamp == nil, err
	}
	if !r.CreateNamespaces {
		return false, nil
	}
	ns = &corev1.Namespace{}
	ns.Name = name
	ns.Labels = map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}
	if err := r.Local.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create namespace %s for its imports: %w", name, err)
	}
	return true, nil
}
