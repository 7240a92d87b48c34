package survey

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/objects"
)

// askAgents asks all agents of the cluster what their reconcilers wait for before they write what a
// service needs. Only the leader has an answer that is not empty. An agent that cannot be asked is
// no error: it may run outside of the cluster, or the user may not be allowed to reach its pod.
func (c *Cluster) askAgents(ctx context.Context, key types.NamespacedName) []objects.Waiting {
	pods, err := c.pods(ctx, agentComponent)
	if err != nil {
		return nil
	}
	answers := make([][]objects.Waiting, len(pods))
	var asking sync.WaitGroup
	for i := range pods {
		asking.Go(func() {
			body, err := getFromPod(ctx, c.Config, &pods[i], objects.WaitingPath, map[string]string{objects.ServiceParameter: key.String()})
			if err != nil {
				return
			}
			var answer []objects.Waiting
			if json.Unmarshal(body, &answer) == nil {
				answers[i] = answer
			}
		})
	}
	asking.Wait()
	return slices.Concat(answers...)
}
