package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// The times of a member's lease on the broker.
const (
	// RenewEvery is how often a member renews its lease.
	RenewEvery = 5 * time.Second
	// LeaseDuration is how long after its last renewal a member counts as alive: three renewals may
	// be lost.
	LeaseDuration = 20 * time.Second

	shortestLease = time.Second
	longestLease  = 10 * time.Minute

	// renewalsPerSecond bounds how many leases all members of a clusterset renew: with RenewEvery
	// 250 members reach it. A renewal takes some three milliseconds of an API server's time.
	renewalsPerSecond = 50
)

// LeaseStretch returns by how much a member's renewals and its lease are longer than they are in a
// small clusterset: with so many members that they would renew more than renewalsPerSecond leases.
func LeaseStretch(renewEvery time.Duration, members int) float64 {
	return max(1, float64(members)/(renewalsPerSecond*renewEvery.Seconds()))
}

// LeaseDurationOf returns how long a lease lasts after its renewal, as its holder says, within
// bounds: another cluster wrote it.
func LeaseDurationOf(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.LeaseDurationSeconds == nil {
		return LeaseDuration
	}
	return min(max(time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second, shortestLease), longestLease)
}

// LeaderNonce returns the nonce of the process that leads a cluster's agents, from what identifies
// it in their election. All members can read it, so it does not show the names of pods.
func LeaderNonce(process string) string {
	sum := sha256.Sum256([]byte(process))
	return hex.EncodeToString(sum[:8])
}

// IsMarkedBy reports whether the process with this nonce has marked a member's lease: its cluster
// is a copy of the one that renews the lease.
func IsMarkedBy(lease *coordinationv1.Lease, nonce string) bool {
	return strings.HasPrefix(lease.Annotations[v1alpha1.AnnotationDuplicate], nonce+" ")
}

// RemovedAt returns when a cluster left or was removed, from its Lease on the broker or from its
// membership Secret. It returns "" for a member.
func RemovedAt(obj metav1.Object) string { return obj.GetAnnotations()[v1alpha1.AnnotationRemovedAt] }

// MarkRemoved marks a Lease or a membership Secret for RemovedAt.
func MarkRemoved(obj metav1.Object, at string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationRemovedAt] = at
	obj.SetAnnotations(annotations)
}

// ClearRemoved undoes MarkRemoved and reports whether obj was marked.
func ClearRemoved(obj metav1.Object) bool {
	annotations := obj.GetAnnotations()
	_, marked := annotations[v1alpha1.AnnotationRemovedAt]
	delete(annotations, v1alpha1.AnnotationRemovedAt)
	obj.SetAnnotations(annotations)
	return marked
}
