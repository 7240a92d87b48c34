package agent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
	"github.com/seamark-dev/seamark/internal/objects"
)

// exportKind is the name of the CRD of ServiceExports.
const exportKind = "serviceexports.multicluster.x-k8s.io"

var kindOfCRDs = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// guardWithdrawals sets up what decides which withdrawals are held.
func (a *agent) guardWithdrawals(context.Context) error {
	w := &a.withdrawals
	w.Hold = a.WithdrawalHold
	w.Missing.Read = func(ctx context.Context) (withdrawal.Share, error) {
		return exports.CountMissing(ctx, a.manager.GetClient(), a.broker.GetClient(), a.membership.ClusterID, &w.Deleted)
	}
	h := &a.heldImports
	h.Hold = a.WithdrawalHold
	h.Left, h.BrokerIsLive = a.hasLeft, a.state.Liveness.BrokerWatchIsLive
	h.Missing.Read = func(ctx context.Context) (map[string]withdrawal.Share, error) {
		return imports.CountMissing(ctx, a.manager.GetClient(), a.broker.GetClient(), &h.Deleted)
	}
	return nil
}

// leftMemory is for how long an answer of hasLeft holds: all services of a cluster may ask.
const leftMemory = 2 * time.Second

// hasLeft reports whether a cluster left the clusterset or was removed: its lease says so. A broker
// that has lost the records of a cluster has lost its lease too, or has one without the mark.
func (a *agent) hasLeft(ctx context.Context, clusterID string) (bool, error) {
	reading, _ := a.left.LoadOrStore(clusterID, &withdrawal.Reading[bool]{Read: func(ctx context.Context) (bool, error) {
		key := types.NamespacedName{Namespace: a.membership.Namespace, Name: clusterID}
		lease, err := index.GetOrNil(ctx, a.brokerDirect, key, &coordinationv1.Lease{})
		return lease != nil && objects.RemovedAt(lease) != "", err
	}})
	return reading.(*withdrawal.Reading[bool]).After(ctx, time.Now().Add(-leftMemory))
}

// readExportKind reads the metadata of the CRD of ServiceExports, nil if there is none. An agent
// whose role does not allow that takes the CRD for untouched.
func (a *agent) readExportKind(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(kindOfCRDs)
	err := a.localDirect.Get(ctx, types.NamespacedName{Name: exportKind}, crd)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // documented
	case apierrors.IsForbidden(err):
		a.warnExportKind.Do(func() {
			a.Log.Error(err, "cannot read the CRD of ServiceExports: if it is deleted, all exports are withdrawn at once")
		})
		return &metav1.PartialObjectMetadata{}, nil
	}
	return crd, err
}
