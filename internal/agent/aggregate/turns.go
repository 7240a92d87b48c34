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
	ahead   int
	skipped int       // how many of those ahead this member does not wait for any more
	since   time.Time // when it last moved, or when some were last skipped
	pause   time.Time // until when this member waits in any case
}

// moved returns the place when so many are ahead. Those ahead may not be running: each stallTime
// without progress lets a few more go. It must not be all of them, because the API server may only
// be slow.
func (p place) moved(ahead int, now time.Time) place {
	if p.ahead != ahead {
		p.ahead, p.since = ahead, now
	}
	stalls := now.Sub(p.since) / stallTime
	p.skipped += int(stalls) * together
	p.since = p.since.Add(stalls * stallTime)
	return p
}

// wait returns how long to wait; 0 if it is this member's turn.
func (p place) wait(now time.Time) time.Duration {
	switch {
	case now.Before(p.pause):
		return p.pause.Sub(now)
	case p.ahead <= p.skipped:
		return 0
	}
	return turns(p.ahead - p.skipped)
}

// remaining returns how long to wait until a service is looked at again, when so many others are
// ahead; 0 if it is this member's turn.
func (w *waitingTurns) remaining(service types.NamespacedName, ahead int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p, known := w.places[service]
	if !known {
		p = place{ahead: ahead, since: now}
	}
	p = p.moved(ahead, now)
	w.set(service, p)
	return p.wait(now)
}

// pause makes this member wait in any case, and returns for how long.
func (w *waitingTurns) pause(service types.NamespacedName, d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, now := w.places[service], time.Now()
	p.since, p.pause = now, now.Add(d)
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
