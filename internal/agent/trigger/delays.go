package trigger

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Delays measures delays of services, each from when it was first asked for. The zero value has
// none. It is safe for concurrent use.
type Delays struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// Remaining returns what is left of a service's delay. A delay of zero ends it, so that the next
// one starts anew.
func (d *Delays) Remaining(service types.NamespacedName, delay time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delay == 0 {
		delete(d.since, service)
		return 0
	}
	since, known := d.since[service]
	if !known {
		if d.since == nil {
			d.since = map[types.NamespacedName]time.Time{}
		}
		since = time.Now()
		d.since[service] = since
	}
	return max(0, delay-time.Since(since))
}
