package agent

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Members that were started together, or that saw the same event, must not ask the broker at the
// same moment, and not again and again. Periods and delays differ between members.

// stagger returns a part of the span that is always the same for this member and purpose.
func (a *agent) stagger(purpose string, span time.Duration) time.Duration {
	return objects.Jitter(a.membership.ClusterID, types.NamespacedName{Name: purpose}, span)
}

// staggerMembers returns a part of the time that the broker needs for all members.
func (a *agent) staggerMembers(purpose string) time.Duration {
	return a.stagger(purpose, min(time.Duration(a.clusters.Len())*member.PerMember, time.Minute))
}

// reportDelay returns how long to wait before the status is compared again. After attempts that
// failed it doubles. part is a part of a second that differs between members.
func reportDelay(reported bool, failed int, part time.Duration) time.Duration {
	delay := statusInterval
	if !reported {
		delay = min(time.Second<<min(failed, 10), maxBackoff)
	}
	return delay*3/4 + time.Duration(float64(delay/2)*part.Seconds())
}

// jitteredBackoff makes the delays of failed reconciles random, from half of what is meant to one
// and a half of it.
type jitteredBackoff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
}

func newBackoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return jitteredBackoff{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff)}
}

// When implements workqueue.TypedRateLimiter.
func (b jitteredBackoff) When(item reconcile.Request) time.Duration {
	delay := b.TypedRateLimiter.When(item)
	return delay/2 + rand.N(delay)
}

// leaseStretch returns by how much the times of leases are longer with as many members as there
// are; 0 if that is not known, as in a replica that does not lead.
func (a *agent) leaseStretch() float64 {
	members := a.clusters.Len()
	if members == 0 {
		return 0
	}
	return objects.LeaseStretch(a.RenewEvery, members)
}
