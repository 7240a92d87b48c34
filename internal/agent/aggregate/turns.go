package aggregate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// waitingTurns are the services of which this member waits to write its entry. The zero value has
// none. It is safe for concurrent use.
type waitingTurns struct {
	mu     sync.Mutex
	places map[types.NamespacedName]place
}

// place is a place in a queue of exporters.
type place struct {
	ahead int
	since time.Time // when it last moved
	pause time.Time // until when this member waits in any case
}

// wait returns how long to wait; 0 if it is this member's turn. While the place does not move, the
// number of exporters that write in spite of those before them doubles: a few at first, because the
// API server may only be slow.
func (p place) wait(now time.Time) time.Duration {
	if now.Before(p.pause) {
		return p.pause.Sub(now)
	}
	stalled := min(now.Sub(p.since)/stallTime, 30)
	if p.ahead < 1<<stalled {
		return 0
	}
	return turns(p.ahead)
}

// remaining returns how long to wait until a service is looked at again, when so many others are
// ahead; 0 if it is this member's turn.
func (w *waitingTurns) remaining(service types.NamespacedName, ahead int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p, known := w.places[service]
	if !known || p.ahead != ahead {
		p.ahead, p.since = ahead, now
		w.set(service, p)
	}
	return p.wait(now)
}

// pause makes this member wait in any case, and returns for how long.
func (w *waitingTurns) pause(service types.NamespacedName, d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.places[service]
	p.since = time.Now()
	p.pause = p.since.Add(d)
	w.set(service, p)
	return d
}

func (w *waitingTurns) set(service types.NamespacedName, p place) {
	if w.places == nil {
		w.places = map[types.NamespacedName]place{}
	}
	w.places[service] = p
}

// end forgets a service whose entry is as it should be.
func (w *waitingTurns) end(service types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.places, service)
}
