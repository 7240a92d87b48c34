package member

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listFrom is for how many leases one list is cheaper for the broker than reading each.
const listFrom = 32

// readTimeout bounds the reading of leases. It does not depend on how often they are read: a broker
// that is slow for long would keep its members from judging anything.
const readTimeout = 10 * time.Second

// LeaseReader reads the leases of other members for Liveness. A watch of all leases would send
// every renewal to every member: the broker's work would grow with the square of their number.
// Beacons show which clusters serve, so few leases are read often: those of clusters in doubt. Of
// the others one is read for each renewal of the own lease, in turn.
type LeaseReader struct {
	State     *State
	Namespace string
	// Client reads the broker directly.
	Client client.Client
	Log    logr.Logger
	// Members returns the other clusters that concern this one, some of them twice.
	Members func() []string
	// Clusters returns how many clusters use the broker; 0 if that is not known yet.
	Clusters func() int
	// Reached reports whether a cluster answers here, so that its lease is not in doubt.
	Reached func(cluster string) bool
	// Every is how often a lease in doubt is read in a clusterset that is not very large, PollEvery
	// how often it is decided which are.
	Every, PollEvery time.Duration
	// Stretch returns by how much members renew their leases less often; 0 if that is not known yet.
	Stretch func() float64

	listed atomic.Bool
}

// Listed reports whether all leases have been read once.
func (r *LeaseReader) Listed() bool { return r.listed.Load() }

// Start reads leases until ctx ends.
func (r *LeaseReader) Start(ctx context.Context) error {
	failed := 0
	for {
		err := r.readDue(ctx)
		delay := r.PollEvery
		if err != nil {
			delay = RetryDelay(failed, r.Clusters())
			if failed++; failed == 1 && ctx.Err() == nil {
				r.Log.Info("cannot read the leases of other members: none is judged; retrying", "error", err.Error())
			}
		} else {
			failed = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// readDue reads the leases that are due: all when it is called first.
func (r *LeaseReader) readDue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if !r.Listed() {
		return r.list(ctx)
	}
	if !r.State.Judged() || !r.State.Liveness.BrokerWatchIsLive() {
		return nil // which members matter is not known yet, or silence proves nothing
	}
	due := r.State.Liveness.Due(r.Members(), r.Reached, r.interval(), time.Now())
	if len(due) >= listFrom {
		return r.list(ctx)
	}
	for _, cluster := range due {
		lease := &coordinationv1.Lease{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: cluster}, lease)
		switch {
		case apierrors.IsNotFound(err):
			r.State.Liveness.Forget(cluster, time.Now())
		case err != nil:
			return fmt.Errorf("read lease %s: %w", cluster, err)
		default:
			r.State.ObserveLease(lease)
		}
	}
	return nil
}

// interval returns how often a lease in doubt is read at present.
func (r *LeaseReader) interval() time.Duration {
	return time.Duration(float64(r.Every) * max(r.Stretch(), 1))
}

func (r *LeaseReader) list(ctx context.Context) error {
	leases := &coordinationv1.LeaseList{}
	if err := r.Client.List(ctx, leases, client.InNamespace(r.Namespace)); err != nil {
		return fmt.Errorf("list the leases: %w", err)
	}
	for i := range leases.Items {
		if lease := &leases.Items[i]; lease.Name != r.State.Membership.ClusterID { // the watch shows the own one
			r.State.ObserveLease(lease)
		}
	}
	r.listed.Store(true)
	return nil
}

// Due returns the clusters whose leases should be read now, and forgets what is known of clusters
// that are neither members nor stale. The lease of a cluster in doubt is read at each interval, and
// when it may have expired. Of all others, the one that was read longest ago is due at each
// interval.
func (l *Liveness) Due(members []string, reached func(cluster string) bool, interval time.Duration, now time.Time) (due []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	matter := l.matter(members)
	var others []string
	for _, cluster := range matter {
		if reached(cluster) && !l.inDoubt(cluster) {
			others = append(others, cluster)
			continue
		}
		read, lease := l.read[cluster], l.leases[cluster]
		if now.Sub(read) >= interval || lease != nil && lease.expiresUnread(read, now) {
			due = append(due, cluster)
		}
	}
	if len(others) > 0 && now.Sub(l.lastTurn) >= interval {
		l.lastTurn = now
		due = append(due, slices.MinFunc(others, func(a, b string) int { return l.read[a].Compare(l.read[b]) }))
	}
	return due
}

// inDoubt reports whether a cluster is stale, or a member demotes it and no renewal was seen since.
// So a member that lists clusters that are alive makes the others read their leases once.
func (l *Liveness) inDoubt(cluster string) bool {
	if _, stale := l.verdicts[cluster]; stale {
		return true
	}
	lease := l.leases[cluster]
	for _, listed := range l.listed[cluster] {
		if lease == nil || lease.observed.Before(listed) {
			return true
		}
	}
	return false
}

// expiresUnread reports whether the lease may have expired since it was read.
func (l *lease) expiresUnread(read, now time.Time) bool {
	expiry := l.observed.Add(l.Duration)
	return !read.After(expiry) && now.After(expiry)
}

// matter returns the clusters whose leases matter, sorted, and forgets all others but this one.
func (l *Liveness) matter(members []string) []string {
	matter := slices.Clone(members)
	for cluster := range l.verdicts {
		matter = append(matter, cluster)
	}
	slices.Sort(matter)
	matter = slices.DeleteFunc(slices.Compact(matter), func(c string) bool { return c == l.self })
	for cluster := range l.read {
		if _, ok := slices.BinarySearch(matter, cluster); !ok && cluster != l.self {
			delete(l.read, cluster)
			delete(l.leases, cluster)
		}
	}
	return matter
}
