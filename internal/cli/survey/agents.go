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
	var answers [][]objects.Reachability
	for _, body := range c.getFromAgents(ctx, objects.ReachabilityPath, nil) {
		var answer []objects.Reachability
		if json.Unmarshal(body, &answer) == nil {
			answers = append(answers, answer)
		}
	}
	out := slices.Concat(answers...)
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
	var answers [][]objects.Waiting
	for _, body := range c.getFromAgents(ctx, objects.WaitingPath, map[string]string{objects.ServiceParameter: key.String()}) {
		var answer []objects.Waiting
		if json.Unmarshal(body, &answer) == nil {
			answers = append(answers, answer)
		}
	}
	return slices.Concat(answers...)
}

// getFromAgents requests a path from all pods of the agent at the same time, and returns the
// answers of those that can be asked.
func (c *Cluster) getFromAgents(ctx context.Context, path string, query map[string]string) [][]byte {
	pods, err := c.pods(ctx, agentComponent)
	if err != nil {
		return nil
	}
	answers := make([][]byte, len(pods))
	var asking sync.WaitGroup
	for i := range pods {
		asking.Go(func() {
			if body, err := getFromPod(ctx, c.Config, &pods[i], path, query); err == nil {
				answers[i] = body
			}
		})
	}
	asking.Wait()
	return slices.DeleteFunc(answers, func(body []byte) bool { return body == nil })
}
