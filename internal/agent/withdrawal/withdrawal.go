// Package withdrawal helps to tell withdrawals that users asked for from those that follow from a
// view that lost most of its objects: an API server that was restored to an older state, a CRD that
// was deleted with all its objects, a broker that came back empty.
//
// A withdrawal whose deletion a watch showed is never delayed. Others are held if they are many: at
// least minServices services, and more than half of those of a cluster. Exporters apply this to
// what they have published, importers to what they have imported of each cluster.
package withdrawal

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Settle is how long a service must be missing before the missing ones are counted: an informer
	// that lists again reports the missing objects one after the other.
	Settle = 2 * time.Second
	// Fresh is how long before its decision a service may have been counted.
	Fresh = time.Second
	// minServices is how many services must be missing. Fewer are removed in daily work, also while
	// no agent runs.
	minServices = 3
)

// Share is how many services of a cluster are missing, of how many.
type Share struct{ Missing, Total int }

// IsMost reports whether so many services are missing that withdrawing them is held.
func (s Share) IsMost() bool { return s.Missing >= minServices && 2*s.Missing > s.Total }

// Remaining returns how much is left of a hold that began at since. A time in the future is that of
// a clock that was set back: the hold begins now.
func Remaining(hold time.Duration, since, now time.Time) time.Duration {
	return min(hold, hold-now.Sub(since))
}

// Reading is something that is read again only if the last reading is too old. It is safe for
// concurrent use.
type Reading[T any] struct {
	Read func(context.Context) (T, error)

	mu    sync.Mutex
	at    time.Time
	value T
}

// After returns a value whose reading began after t.
func (r *Reading[T]) After(ctx context.Context, t time.Time) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.After(t) {
		return r.value, nil
	}
	began := time.Now()
	value, err := r.Read(ctx)
	if err == nil {
		r.at, r.value = began, value
	}
	return value, err
}

// Deletions are the deletions of objects of services that a watch showed. It is safe for concurrent
// use, and its zero value is empty.
type Deletions struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]map[string]Deletion
}

// Deletion is when a deletion was seen, and when the object had been created.
type Deletion struct{ At, Created time.Time }

// Changed records that the object of a service was added, or that its deletion was observed. part
// tells the objects of one service apart.
func (d *Deletions) Changed(service types.NamespacedName, part string, obj client.Object, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parts := d.seen[service]
	if !deleted {
		if delete(parts, part); len(parts) == 0 {
			delete(d.seen, service)
		}
		return
	}
	if parts == nil {
		if d.seen == nil {
			d.seen = map[types.NamespacedName]map[string]Deletion{}
		}
		parts = map[string]Deletion{}
		d.seen[service] = parts
	}
	parts[part] = Deletion{At: time.Now(), Created: obj.GetCreationTimestamp().Time}
}

// Of returns the deletion of the object of a service, if it was seen.
func (d *Deletions) Of(service types.NamespacedName, part string) (Deletion, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deletion, seen := d.seen[service][part]
	return deletion, seen
}

// Forget forgets the deletions of a service that were seen before t: the caller has read the
// service's objects since t, and none of them is missing. Later deletions stay.
func (d *Deletions) Forget(service types.NamespacedName, t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parts := d.seen[service]
	maps.DeleteFunc(parts, func(_ string, deletion Deletion) bool { return deletion.At.Before(t) })
	if len(parts) == 0 {
		delete(d.seen, service)
	}
}

// Services is a set of services. It is safe for concurrent use, and its zero value is empty.
type Services struct {
	mu  sync.Mutex
	set map[types.NamespacedName]struct{}
}

// Set adds a service or removes it. first reports whether it is the only one now and was added.
func (s *Services) Set(service types.NamespacedName, in bool) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !in {
		delete(s.set, service)
		return false
	}
	if s.set == nil {
		s.set = map[types.NamespacedName]struct{}{}
	}
	before := len(s.set)
	s.set[service] = struct{}{}
	return before == 0
}

// Len returns how many services there are.
func (s *Services) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.set)
}
