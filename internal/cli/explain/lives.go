package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Life is the state of a member by its lease.
type Life struct {
	// Joined reports whether the lease was renewed at least once.
	Joined bool `json:"joined"`
	// Alive reports whether the last renewal has not expired.
	Alive bool `json:"alive"`
	// Age is the time since the last renewal, by the broker's clock.
	Age time.Duration `json:"-"`
	// Last is the time of the last renewal, by the broker's clock.
	Last time.Time `json:"-"`
}

// rounding is the resolution of the times that API servers keep: a renewal may be that much newer
// than it seems.
const rounding = time.Second

// LifeOf returns the life of the member with a lease. now is by the broker's clock. The time of the
// lease's last write is too, so a member whose clock is wrong does not seem to be silent. Without
// that time, the one that the member wrote counts.
func LifeOf(lease *coordinationv1.Lease, now time.Time) Life {
	if lease == nil || lease.Spec.RenewTime == nil {
		return Life{}
	}
	last := lastWrite(lease.ManagedFields)
	if last.IsZero() {
		last = lease.Spec.RenewTime.Time
	}
	age := max(0, now.Sub(last))
	return Life{Joined: true, Alive: age <= objects.LeaseDurationOf(lease)+rounding, Age: age, Last: last}
}

func lives(in *Input) map[string]Life {
	out := map[string]Life{}
	now := in.Now.Add(in.Broker.ClockAhead.Duration)
	for i := range in.Broker.Leases {
		lease := &in.Broker.Leases[i]
		out[lease.Name] = LifeOf(lease, now)
	}
	return out
}

// Silent reports whether the member joined and its lease has expired.
func (l Life) Silent() bool { return l.Joined && !l.Alive }

// Demoted returns the silent clusters that have lost their precedence: a member that is alive lists
// them in the status of its Cluster.
func Demoted(members []v1alpha1.Cluster, lives map[string]Life) map[string]bool {
	out := map[string]bool{}
	for i := range members {
		for _, id := range members[i].Status.Demoted {
			if lives[members[i].Name].Alive && lives[id].Silent() {
				out[id] = true
			}
		}
	}
	return out
}

// stale reports whether a member joined and its lease has expired.
func (e *explainer) stale(cluster string) bool {
	return e.lives[cluster].Silent()
}

// heartbeat returns the state of a member's lease in one word.
func (e *explainer) heartbeat(cluster string) string {
	life, known := e.lives[cluster]
	switch {
	case !known:
		return "unknown"
	case !life.Joined:
		return "never"
	case life.Alive:
		return "alive"
	}
	return "silent"
}
