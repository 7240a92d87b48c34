package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// releaseTimeout bounds how long a leader that ends waits for the broker.
const releaseTimeout = time.Second

// Heartbeat renews this member's lease on the broker. The lease also decides which cluster owns the
// id: its holder is the uid of a cluster's kube-system namespace, its nonce identifies the leader
// of its agents, and a second cluster with the same id cannot acquire it while the first is alive.
//
// It runs in all replicas. The leader renews; if it has not for a while, any other replica renews
// for it, because electing the next leader takes almost as long as the lease lasts.
type Heartbeat struct {
	ClusterID  string
	ClusterSet string
	Namespace  string
	// Holder identifies this cluster, whatever its id.
	Holder string
	// Client reads and writes the broker directly: a cached lease would always be one renewal old.
	Client client.Client
	Log    logr.Logger
	// Elected is closed when this replica becomes the leader.
	Elected <-chan struct{}
	// LeaderNonce returns the nonce of this cluster's leader, which all its replicas can read.
	LeaderNonce func(context.Context) (string, error)
	// RenewEvery is how often the lease is renewed in a clusterset that is not very large.
	RenewEvery time.Duration
	// LeaseDuration is how long after a renewal other members then take this one for alive.
	LeaseDuration time.Duration
	// Stretch returns by how much both are longer at present; 0 if that is not known yet.
	Stretch func() float64
	// NewestLease returns the highest resource version of all leases that this agent has received,
	// WatchedLease that of its own lease as received from the watch; 0 if there is none.
	NewestLease, WatchedLease func() int64
	// Watching reports whether the watch of the own lease is open.
	Watching func() bool
	// Demoted reports whether other members list this one as demoted, and whether that is known yet.
	Demoted func() (demoted, known bool)
	// OnBrokerRestored is called if the broker's lease is older than the last one read or written,
	// or if a renewal is older than what was received: the broker was restored from a backup.
	OnBrokerRestored func()

	claim       claim
	known       *coordinationv1.Lease // as last written, nil if it must be read
	lastVersion int64                 // resource version of the lease as last read or written
	stretch     float64               // as last read or written
	watch       watchedRenewals

	mark   duplicateMark
	marked time.Time // when this process last marked the lease of its copy

	yieldUntil time.Time // until when other members may still demote this one

	mu      sync.Mutex
	holdsID bool
	lastErr error
	hasCopy bool
}

// NeedLeaderElection makes the manager run the heartbeat in all replicas.
func (h *Heartbeat) NeedLeaderElection() bool { return false }

// Start renews until ctx ends, or until the lease says that this cluster was removed.
func (h *Heartbeat) Start(ctx context.Context) error {
	h.claim.holder = h.Holder
	h.setStretch(1)
	elected := h.Elected
	ticker := time.NewTicker(h.RenewEvery)
	defer ticker.Stop()
	shifted, interval := false, time.Duration(0)
	for {
		select {
		case <-elected:
			elected, shifted = nil, false
		default:
		}
		if elected != nil {
			h.standIn(ctx)
		} else {
			h.lead(ctx)
			if err := h.LastError(); isRemoved(err) {
				return err
			}
		}
		switch now := h.interval(); {
		case !shifted:
			ticker.Reset(h.phase())
			shifted, interval = true, 0
		case now != interval:
			ticker.Reset(now)
			interval = now
		}
		select {
		case <-ctx.Done():
			h.release()
			return nil
		case <-elected:
			elected, shifted = nil, false
		case <-ticker.C:
		}
	}
}

// phase returns how long the first interval is, of a replica or of a leader. It differs between
// members, so that those that started together do not renew together for ever.
func (h *Heartbeat) phase() time.Duration {
	return h.interval()/100 + objects.Jitter(h.ClusterID, types.NamespacedName{Name: "heartbeat"}, h.interval())
}

// interval returns how often this replica looks at the lease: as often as it renews, or twice as
// often while another process renews it, to step in soon. If a request failed, the broker may be
// overloaded by all members that try.
func (h *Heartbeat) interval() time.Duration {
	if h.known != nil || h.LastError() != nil {
		return h.renewEvery()
	}
	return h.renewEvery() / 2
}

// renewEvery returns how often the lease is renewed at present.
func (h *Heartbeat) renewEvery() time.Duration { return h.stretched(h.RenewEvery) }

func (h *Heartbeat) stretched(d time.Duration) time.Duration {
	return time.Duration(float64(d) * max(h.stretch, 1))
}

func (h *Heartbeat) setStretch(stretch float64) {
	h.stretch = stretch
	h.claim.renewEvery = h.renewEvery()
}

// attempt bounds the requests of one renewal: a slow one must not delay the next ones.
func (h *Heartbeat) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(h.renewEvery(), time.Second))
}

// lead renews the lease as the leader.
func (h *Heartbeat) lead(ctx context.Context) {
	ctx, cancel := h.attempt(ctx)
	defer cancel()
	var renewed *coordinationv1.Lease
	err := h.learnNonce(ctx)
	if err == nil {
		renewed, err = h.renew(ctx, h.known)
	}
	if apierrors.IsConflict(err) { // another replica renewed it, or a twin marked it
		h.known = nil
		renewed, err = h.renew(ctx, nil)
	}
	if renewed != nil || !unanswered(err) {
		h.known = renewed
	}
	h.recordOutcome(renewed != nil, err)
}

// unanswered reports whether a renewal failed because the broker did not answer it, or was too
// busy. Then the next one need not read the lease first, which would cost a busy broker one more
// request: if this one was written after all, the next is a conflict.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err != nil && !errors.Is(err, objects.ErrClusterIDTaken)
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// learnNonce reads the nonce of this process when it has become the leader.
func (h *Heartbeat) learnNonce(ctx context.Context) error {
	if h.claim.nonce != "" {
		return nil
	}
	nonce, err := h.LeaderNonce(ctx)
	if err != nil {
		return fmt.Errorf("read this cluster's leader election: %w", err)
	}
	h.claim.lead(nonce, time.Now())
	return nil
}

// standIn renews the lease for the leader if it has not renewed it for a while. It publishes
// nothing else, and leaves the nonce as it is. After a long silence it leaves the renewal to the
// leader, which yields first.
func (h *Heartbeat) standIn(ctx context.Context) {
	ctx, cancel := h.attempt(ctx)
	defer cancel()
	lease, err := h.read(ctx)
	if err != nil || !h.claim.overdue(time.Now()) || h.wasSilent(lease) {
		return // the leader reports errors
	}
	leader, err := h.LeaderNonce(ctx)
	if err != nil || !h.claim.mayStandIn(lease, leader, time.Now()) {
		return
	}
	if _, err := h.write(ctx, lease); err == nil {
		h.Log.Info("renewed this member's lease on the broker for the leader, which has not")
	}
}

// release removes the nonce of a leader that ends, so that the next one need not wait to see
// whether this one is alive.
func (h *Heartbeat) release() {
	if h.known == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	lease := h.known.DeepCopy()
	delete(lease.Annotations, v1alpha1.AnnotationNonce)
	if err := h.Client.Update(ctx, lease); err != nil {
		h.Log.V(1).Info("cannot release this member's lease on the broker", "error", err.Error())
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
		h.Log.Error(err, "cannot renew this member's lease on the broker; retrying", "interval", h.renewEvery())
	}
	h.holdsID, h.lastErr = h.holdsID || renewed, err
	if !renewed && (err == nil || errors.Is(err, objects.ErrClusterIDTaken)) {
		h.holdsID = false // another process renewed it; without a request that failed, that is known
	}
	if !renewed {
		h.hasCopy = h.claim.twin
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

// idTakenError says that another cluster holds this cluster's id. twin is true if that is a copy of
// this one.
type idTakenError struct {
	id, holder string
	twin       bool
}

// Is makes the error an objects.ErrClusterIDTaken, by which exports recognize it.
func (e *idTakenError) Is(target error) bool { return target == objects.ErrClusterIDTaken }

func (e *idTakenError) Error() string {
	if e.twin {
		return fmt.Sprintf("the cluster id %s is used by a copy of this cluster (both have the kube-system uid %s, as clusters "+
			"restored from one backup have): run seamark leave in the one that should not have the id, and join with another id", e.id, e.holder)
	}
	return fmt.Sprintf("the cluster id %s is used by another cluster (kube-system uid %s): "+
		"run seamark leave here and join with another id", e.id, e.holder)
}

// read reads the lease, and observes renewals by other processes. Those renew as often as the lease
// says: a process that does not lead knows no other members.
func (h *Heartbeat) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	if err := h.Client.Get(ctx, types.NamespacedName{Namespace: h.Namespace, Name: h.ClusterID}, lease); err != nil {
		return nil, fmt.Errorf("read lease %s: %w", h.ClusterID, err)
	}
	if lease.Spec.LeaseDurationSeconds != nil {
		h.setStretch(objects.LeaseDurationOf(lease).Seconds() / h.LeaseDuration.Seconds())
	}
	h.claim.observe(lease, time.Now())
	return lease, removal(lease, h.ClusterID, h.ClusterSet)
}

// renew writes the lease if it belongs to this process. known is what the last renewal wrote, or
// nil; it saves reading the lease each time. It returns nil if the lease was not written.
func (h *Heartbeat) renew(ctx context.Context, known *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease := known
	h.checkWatch(known != nil && h.LastError() == nil)
	if lease == nil {
		var err error
		if lease, err = h.read(ctx); err != nil {
			return nil, err
		}
		if ok, err := h.belongsHere(ctx, lease); !ok {
			return nil, err
		}
	}
	lease = lease.DeepCopy()
	if err := h.yieldAfterSilence(ctx, lease); err != nil {
		return nil, err
	}
	h.keepMark(lease)
	lease.Spec.HolderIdentity = ptr.To(h.Holder)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationNonce, h.claim.nonce)
	return h.write(ctx, lease)
}

// checkWatch starts the watches of the broker over if they have not delivered this member's
// renewals for the duration of a lease, although they succeed. It is the last resort for a watch
// that waits for a version which the broker will not have for long.
func (h *Heartbeat) checkWatch(renewing bool) {
	behind := renewing && h.WatchedLease() < h.lastVersion
	if h.watch.stuck(behind, h.Watching(), time.Now(), h.stretched(h.LeaseDuration)) {
		h.Log.Info("the watch does not deliver this member's renewals; listing all objects of the broker again")
		h.OnBrokerRestored()
	}
}

// watchedRenewals observes whether the watch delivers this member's renewals.
type watchedRenewals struct {
	since  time.Time // when it last did, was not open, or was started over
	waited int       // how often it was started over since it last did
}

// stuck reports whether the watch must start over. It is patient for twice as long each time: the
// broker may only be slow, and to list everything for all members makes it slower. A watch that is
// not open is not stuck: after an outage it waits for its turn, for longer than renewals do.
func (w *watchedRenewals) stuck(behind, open bool, now time.Time, patience time.Duration) bool {
	if !behind {
		*w = watchedRenewals{since: now}
		return false
	}
	if !open {
		w.since = now
		return false
	}
	if now.Sub(w.since) <= patience<<min(w.waited, 8) {
		return false
	}
	w.since = now
	w.waited++
	return true
}

// belongsHere reports whether a lease that was read is this process's to renew. It returns an error
// if another cluster renews it, none if that is not known yet.
func (h *Heartbeat) belongsHere(ctx context.Context, lease *coordinationv1.Lease) (bool, error) {
	version := objects.ResourceVersion(lease)
	restored := version < h.lastVersion
	h.lastVersion = version
	if restored {
		h.brokerRestored()
		if h.HoldsClusterID() {
			return true, nil // the backup has a nonce from before
		}
	}
	switch h.claim.judge(lease, time.Now()) {
	case mayRenew:
		return true, nil
	case takenByOther:
		return false, &idTakenError{h.ClusterID, ptr.Deref(lease.Spec.HolderIdentity, ""), false}
	case takenByTwin:
		h.markDuplicate(ctx, lease)
		return false, &idTakenError{h.ClusterID, h.Holder, true}
	}
	return false, nil
}

func (h *Heartbeat) brokerRestored() {
	h.Log.Info("the broker was restored from a backup; listing all its objects again")
	h.OnBrokerRestored()
}

// write renews the lease. Its new version is higher than all that were received before, unless the
// broker was restored since then.
func (h *Heartbeat) write(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	now := time.Now()
	if stretch := h.Stretch(); stretch > 0 {
		h.setStretch(stretch)
	}
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(max(h.stretched(h.LeaseDuration).Seconds(), 1)))
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
	objects.ForgetManagers(lease)
	newest := h.NewestLease()
	if err := h.Client.Update(ctx, lease); err != nil {
		return nil, fmt.Errorf("renew lease %s: %w", h.ClusterID, err)
	}
	h.claim.renewed(lease.Spec.RenewTime.Time, now)
	h.lastVersion = objects.ResourceVersion(lease)
	if h.lastVersion < newest {
		h.brokerRestored()
	}
	return lease, nil
}
