package survey

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/objects"
)

// askReachability asks all agents of the cluster which other clusters they reach. Only the leader
// has an answer that is not empty. Times are on the clock of this machine.
func (c *Cluster) askReachability(ctx context.Context) []objects.Reachability {
	out := getFromAgents[objects.Reachability](ctx, c, objects.ReachabilityPath, nil)
	now := time.Now()
	ahead := c.clock.now(now).Sub(now)
	for i := range out {
		out[i].Since = out[i].Since.Add(-ahead)
	}
	return out
}

// askAgents asks all agents of the cluster what their reconcilers wait for before they write what a
// service needs. Only the leader has an answer that is not empty. An agent that cannot be asked is
// no error: it may run outside of the cluster, or the user may not be allowed to reach its pod.
func (c *Cluster) askAgents(ctx context.Context, key types.NamespacedName) []objects.Waiting {
	return getFromAgents[objects.Waiting](ctx, c, objects.WaitingPath, map[string]string{objects.ServiceParameter: key.String()})
}

// getFromAgents requests a path from all pods of the agent at the same time, and returns the lists
// of those that can be asked, as one.
func getFromAgents[T any](ctx context.Context, c *Cluster, path string, query map[string]string) []T {
	pods, err := c.pods(ctx, agentComponent)
	if err != nil {
		return nil
	}
	answers := make([][]T, len(pods))
	var asking sync.WaitGroup
	for i := range pods {
		asking.Go(func() {
			body, err := getFromPod(ctx, c.Config, &pods[i], path, query)
			if err != nil {
				return
			}
			var answer []T
			if json.Unmarshal(body, &answer) == nil {
				answers[i] = answer
			}
		})
	}
	asking.Wait()
	return slices.Concat(answers...)
}
