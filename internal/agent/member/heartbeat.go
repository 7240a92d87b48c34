package member

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// Heartbeat renews this member's lease on the broker. The lease also settles who the id belongs to: its holder is the uid of
// a cluster's kube-system namespace, and a second cluster with the same id does not get it while the first is alive.
type Heartbeat struct {
	ClusterID string
	Namespace string
	// Holder identifies this cluster, whatever its id.
	Holder string
	// Client reads and writes the broker directly: a cached lease would always be one renewal old.
	Client client.Client
	Log    logr.Logger
	// Every is how often the lease is renewed; RenewEvery unless a test is in a hurry.
	RenewEvery time.Duration
	// Duration is how long others believe it.
	LeaseDuration time.Duration
	// SetBack is told when the broker has an older lease than was written last: it was set back to an older state.
	OnBrokerRestored func()

	lastVersion int64 // the resourceVersion of the lease as it was written last

	mu       sync.Mutex
	holdsID     bool
	lastErr  error
	otherRenewal   time.Time // the other holder's last renewal, as it wrote it
	otherRenewalObserved time.Time // when that was first seen here
}

// Start renews until ctx ends. It is run by the leader only.
func (h *Heartbeat) Start(ctx context.Context) error {
	ticker := time.NewTicker(h.RenewEvery)
	defer ticker.Stop()
	var known *coordinationv1.Lease
	for {
		// One slow renewal must not swallow the next ones.
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

// settle remembers the outcome and logs it when it changed, not at every beat.
func (h *Heartbeat) recordOutcome(renewed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if renewed && !h.holdsID {
		h.Log.Info("this member's lease on the broker is held")
	}
	if err != nil && (h.lastErr == nil || h.lastErr.Error() != err.Error()) {
		h.Log.Error(err, "cannot renew this member's lease on the broker")
	}
	h.holdsID, h.lastErr = h.holdsID || renewed, err
	if _, taken := err.(*idTakenError); taken { //nolint:errorlint // made here, never wrapped
		h.holdsID = false
	}
}

// Held tells whether the id is this cluster's. It stays so while the broker is away.
func (h *Heartbeat) HoldsClusterID() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holdsID
}

// Problem is why the last renewal failed, nil when it did not.
func (h *Heartbeat) LastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastErr
}

// Taken is why this cluster may not use its id, nil when it may or when that is not known.
func (h *Heartbeat) ClusterIDTaken() error {
	var taken *idTakenError
	if errors.As(h.LastError(), &taken) {
		return taken
	}
	return nil
}

type idTakenError struct{ id, holder string }

// Is makes it known to exports, which say it to the user.
func (e *idTakenError) Is(target error) bool { return target == objects.ErrClusterIDTaken }

func (e *idTakenError) Error() string {
	return fmt.Sprintf("the cluster id %s is used by another cluster (kube-system uid %s): run seamark leave here and join with another id", e.id, e.holder)
}

// renew writes the lease. known is what the last renewal wrote, or nil; it saves reading the lease each time.
func (h *Heartbeat) renew(ctx context.Context, known *coordinationv1.Lease, now time.Time) (*coordinationv1.Lease, error) {
	lease := known
	if lease == nil {
		lease = &coordinationv1.Lease{}
		if err := h.Client.Get(ctx, types.NamespacedName{Namespace: h.Namespace, Name: h.ClusterID}, lease); err != nil {
			return nil, fmt.Errorf("read lease %s: %w", h.ClusterID, err)
		}
		if version := revision(lease); version < h.lastVersion {
			h.Log.Info("the broker was set back to an older state: looking at everything anew")
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
	h.lastVersion = revision(lease)
	return lease, nil
}

// revision is the place of an object's last write among all writes to its server (KEP-5504); 0 where a server does otherwise.
func revision(lease *coordinationv1.Lease) int64 {
	v, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// otherAlive judges another holder as liveness judges anybody: by renewals observed here, not by its clock.
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
