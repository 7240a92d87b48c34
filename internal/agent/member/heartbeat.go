package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Heartbeat renews this member's lease on the broker. The lease also decides which cluster owns the
// id: its holder is the uid of a cluster's kube-system namespace, and a second cluster with the
// same id cannot acquire it while the first is alive.
type Heartbeat struct {
	ClusterID string
	Namespace string
	// Holder identifies this cluster, whatever its id.
	Holder string
	// Client reads and writes the broker directly: a cached lease would always be one renewal old.
	Client client.Client
	Log    logr.Logger
	// RenewEvery is how often the lease is renewed.
	RenewEvery time.Duration
	// LeaseDuration is how long after a renewal other members take this one for alive.
	LeaseDuration time.Duration
	// OnBrokerRestored is called if the broker's lease is older than the last one written: the broker
	// was restored from a backup.
	OnBrokerRestored func()

	lastVersion int64 // resource version of the lease as last written

	mu                   sync.Mutex
	holdsID              bool
	lastErr              error
	otherRenewal         time.Time // the other holder's last renewal, as it wrote it
	otherRenewalObserved time.Time // when that renewal was first observed here
}

// Start renews until ctx ends. It is run by the leader only.
func (h *Heartbeat) Start(ctx context.Context) error {
	ticker := time.NewTicker(h.RenewEvery)
	defer ticker.Stop()
	var known *coordinationv1.Lease
	for {
		// The timeout keeps a slow renewal from delaying the next ones.
		attempt, cancel := context.WithTimeout(ctx, max(h.RenewEvery, time.Second))
		lease, err := h.renew(attempt, known, time.Now())
		cancel()
		known = lease
		h.recordOutcome(lease != nil, err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// recordOutcome records the outcome of a renewal and logs it if it changed.
func (h *Heartbeat) recordOutcome(renewed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if renewed && !h.holdsID {
		h.Log.Info("acquired this member's lease on the broker")
	}
	if err != nil && (h.lastErr == nil || h.lastErr.Error() != err.Error()) {
		h.Log.Error(err, "cannot renew this member's lease on the broker; retrying", "interval", h.RenewEvery)
	}
	h.holdsID, h.lastErr = h.holdsID || renewed, err
	if _, taken := err.(*idTakenError); taken { //nolint:errorlint // made here, never wrapped
		h.holdsID = false
	}
}

// HoldsClusterID reports whether the id belongs to this cluster. It stays true while the broker is
// unreachable.
func (h *Heartbeat) HoldsClusterID() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holdsID
}

// LastError returns why the last renewal failed, or nil if it succeeded.
func (h *Heartbeat) LastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastErr
}

// ClusterIDTaken returns an error if another cluster holds this cluster's id. It returns nil if
// this cluster holds it or if that is not known.
func (h *Heartbeat) ClusterIDTaken() error {
	var taken *idTakenError
	if errors.As(h.LastError(), &taken) {
		return taken
	}
	return nil
}

type idTakenError struct{ id, holder string }

// Is makes the error an objects.ErrClusterIDTaken, by which exports recognize it.
func (e *idTakenError) Is(target error) bool { return target == objects.ErrClusterIDTaken }

func (e *idTakenError) Error() string {
	return fmt.Sprintf("the cluster id %s is used by another cluster (kube-system uid %s): "+
		"run seamark leave here and join with another id", e.id, e.holder)
}

// renew writes the lease. known is what the last renewal wrote, or nil; it saves reading the lease
// each time.
func (h *Heartbeat) renew(ctx context.Context, known *coordinationv1.Lease, now time.Time) (*coordinationv1.Lease, error) {
	lease := known
	if lease == nil {
		lease = &coordinationv1.Lease{}
		if err := h.Client.Get(ctx, types.NamespacedName{Namespace: h.Namespace, Name: h.ClusterID}, lease); err != nil {
			return nil, fmt.Errorf("read lease %s: %w", h.ClusterID, err)
		}
		if version := objects.ResourceVersion(lease); version < h.lastVersion {
			h.Log.Info("the broker was restored from a backup; listing all its objects again")
			h.lastVersion = version
			h.OnBrokerRestored()
		}
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && holder != h.Holder && h.otherHolderIsAlive(lease, now) {
			return nil, &idTakenError{h.ClusterID, holder}
		}
	}
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity = ptr.To(h.Holder)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(max(h.LeaseDuration.Seconds(), 1)))
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
	if err := h.Client.Update(ctx, lease); err != nil {
		return nil, fmt.Errorf("renew lease %s: %w", h.ClusterID, err)
	}
	h.lastVersion = objects.ResourceVersion(lease)
	return lease, nil
}

// otherHolderIsAlive reports whether another holder renews its lease. Like Liveness it goes by
// renewals observed here, not by the other holder's clock.
func (h *Heartbeat) otherHolderIsAlive(lease *coordinationv1.Lease, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var renewed time.Time
	if lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	if h.otherRenewalObserved.IsZero() || !renewed.Equal(h.otherRenewal) {
		h.otherRenewal, h.otherRenewalObserved = renewed, now
	}
	return now.Sub(h.otherRenewalObserved) <= objects.LeaseDurationOf(lease)
}
