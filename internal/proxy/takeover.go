package proxy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// handOverAfter is how long a service is kept after none of its endpoints is left out any more. By
// then the other data plane has read the slices that the agent wrote, and programmed its nodes.
const handOverAfter = time.Minute

// takeover is which services are taken over from another data plane, such as kube-proxy, with the
// time at which each is handed over again; zero while endpoints of it are left out. When a cluster
// becomes unreachable, the other data plane has to wait until the agent has written the slices of
// every service, and kube-proxy programs a node at most once a second. This proxy knows from one
// object which endpoints to leave out, and its rules come first.
type takeover map[types.NamespacedName]time.Time

// update decides whether a service is taken over. first reports whether it was not before.
func (t takeover) update(service types.NamespacedName, leavesOut bool, now time.Time) (taken, first bool) {
	until, taken := t[service]
	switch {
	case leavesOut:
		t[service] = time.Time{}
		return true, !taken
	case taken && until.IsZero():
		t[service] = now.Add(handOverAfter)
	case taken && !now.Before(until):
		delete(t, service)
		return false, false
	}
	return taken, false
}

// over returns the services that are to be handed over now.
func (t takeover) over(now time.Time) (services []types.NamespacedName) {
	for service, until := range t {
		if !until.IsZero() && !now.Before(until) {
			services = append(services, service)
		}
	}
	return services
}

// wait returns after how long the next service is to be handed over; zero if none is.
func (t takeover) wait(now time.Time) (wait time.Duration) {
	for _, until := range t {
		if !until.IsZero() {
			wait = earlier(wait, max(until.Sub(now), time.Millisecond))
		}
	}
	return wait
}

// earlier returns the shorter of two waits, of which zero means none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
