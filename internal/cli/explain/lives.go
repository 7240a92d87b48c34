package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Life is what a member's lease tells.
type Life struct {
	// Joined tells that the lease was renewed at least once.
	Joined bool `json:"joined"`
	Alive  bool `json:"alive"`
	// Age is how long ago the last renewal was, by the broker's clock.
	Age time.Duration `json:"-"`
	// Last is when that was, on the broker's clock.
	Last time.Time `json:"-"`
}

// rounding is the coarseness of the times that API servers keep: a renewal of a moment ago may look that much older.
const rounding = time.Second

// LifeOf judges a lease. now is the broker's clock: the time of a lease's last write is the broker's too, so that a member whose clock is
// wrong is not taken for dead. Where the broker does not tell that, the member's own word counts.
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

// stale tells a member that was there and fell silent.
func (e *explainer) stale(cluster string) bool {
	life, known := e.lives[cluster]
	return known && life.Joined && !life.Alive
}

// heartbeat puts a member's life into a word.
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
