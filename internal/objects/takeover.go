package objects

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// takeoverDelay is how long an exporter waits for the exporter with precedence. Each adds up to as
// much again, so that they do not all write at once.
const takeoverDelay = 2 * time.Second

// TakeoverDelay is how long an exporter leaves what one exporter must do for a service to the
// exporter with precedence.
func TakeoverDelay(clusterID string, service types.NamespacedName) time.Duration {
	return takeoverDelay + Jitter(clusterID, service, takeoverDelay)
}

// Jitter returns a part of the span that is always the same for a member and a service, and evenly
// distributed over members.
func Jitter(clusterID string, service types.NamespacedName, span time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(clusterID + "/" + service.String()))
	return span * time.Duration(h.Sum32()%1000) / 1000
}
