package member

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// claim decides, without I/O, whether this process may renew the member's lease on the broker. Like
// Liveness it goes by renewals observed here, not by the clock of the process that wrote them.
//
// The lease's holder is the uid of a cluster. Clusters restored from one snapshot share it, so the
// lease also has a nonce, which only the leader of one cluster's replicas has.
type claim struct {
	holder     string
	renewEvery time.Duration
	// nonce is empty while this process is not the leader.
	nonce       string
	leaderSince time.Time

	renewTime    time.Time // the last renewal, as it was written
	ownRenewTime time.Time // the last renewal by this process
	ownRenewal   time.Time // when that was
	// otherRenewal is when a renewal by another process was last observed. The first observation
	// counts as one, because it may have happened just before.
	otherRenewal time.Time
	// foreign is how many renewals with another nonce were observed since this process leads.
	foreign int
	// twin is true from when another cluster with the same uid was found to be alive.
	twin bool
}

// verdict of a claim.
type claimVerdict int

const (
	// mayRenew: the lease belongs to this process, or to a process that is gone.
	mayRenew claimVerdict = iota
	// undecided: the process that renewed last may still be alive.
	undecided
	// takenByOther: a cluster with another uid renews the lease.
	takenByOther
	// takenByTwin: a copy of this cluster renews the lease.
	takenByTwin
)

// silence is how long after the last renewal a process is taken for gone.
func (c *claim) silence() time.Duration { return c.renewEvery * 3 / 2 }

// lead records that this process became the leader, with its nonce.
func (c *claim) lead(nonce string, now time.Time) { c.nonce, c.leaderSince = nonce, now }

// observe records the lease as it was read.
func (c *claim) observe(lease *coordinationv1.Lease, now time.Time) {
	var renewed time.Time
	if lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	first := c.otherRenewal.IsZero()
	if !first && (renewed.Equal(c.renewTime) || renewed.Equal(c.ownRenewTime)) {
		return
	}
	// A renewal that is older than the one before is of a broker that was restored.
	if !first && renewed.After(c.renewTime) && c.nonce != "" && lease.Annotations[v1alpha1.AnnotationNonce] != c.nonce {
		c.foreign++
	}
	c.renewTime, c.otherRenewal = renewed, now
}

// renewed records a renewal by this process.
func (c *claim) renewed(renewTime, now time.Time) {
	c.renewTime, c.ownRenewTime, c.ownRenewal = renewTime, renewTime, now
}

// judge decides for the leader, after observe.
func (c *claim) judge(lease *coordinationv1.Lease, now time.Time) claimVerdict {
	holder, nonce := ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Annotations[v1alpha1.AnnotationNonce]
	silent := now.Sub(c.otherRenewal)
	expired := silent > objects.LeaseDurationOf(lease)
	switch {
	case holder != "" && holder != c.holder && !expired:
		return takenByOther
	case holder != c.holder, nonce == c.nonce, expired,
		!c.twin && (nonce == "" || silent >= c.silence()):
		c.twin, c.foreign = false, 0
		return mayRenew
	case c.twin || (c.foreign >= 2 && now.Sub(c.leaderSince) > c.renewEvery):
		c.twin = true
		return takenByTwin
	}
	return undecided
}

// mayStandIn reports whether a process that is not the leader may renew the lease for the leader
// with this nonce: it has not renewed for a while, and the lease is its.
func (c *claim) mayStandIn(lease *coordinationv1.Lease, leader string, now time.Time) bool {
	return c.overdue(now) && leader != "" && lease.Annotations[v1alpha1.AnnotationNonce] == leader &&
		ptr.Deref(lease.Spec.HolderIdentity, "") == c.holder
}

// overdue reports whether no other process has renewed the lease for a while, and this one not for
// most of an interval.
func (c *claim) overdue(now time.Time) bool {
	return now.Sub(c.otherRenewal) >= c.silence() && now.Sub(c.ownRenewal) >= c.renewEvery*3/4
}
