package survey

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// proxyState is the state of the proxies of a cluster.
type proxyState struct {
	// pods is how many there are, asked how many of them answered.
	pods, asked int
	// ports is how many the node with the fewest has programmed; failed counts the failed
	// transactions of all nodes.
	ports, failed int
	// lastSync is that of the node that synced longest ago.
	lastSync time.Time
	// damaged are the nodes whose table another program changed, each with the difference.
	damaged []string
	// cutOff are the nodes whose proxy cannot reach its API server.
	cutOff  []string
	problem string
}

// readProxies asks every seamark-proxy what its node's kernel holds.
func (c *Cluster) readProxies(ctx context.Context) proxyState {
	var state proxyState
	pods, err := c.pods(ctx, proxyComponent)
	if err != nil {
		state.problem = objects.ErrorText(err)
		return state
	}
	state.pods = len(pods)
	reader, err := newProxyReader(ctx, c)
	if err != nil {
		state.problem = objects.ErrorText(err)
		return state
	}
	for i := range pods {
		var node programmed.Node
		if err := reader.get(ctx, &pods[i], programmed.Path, nil, &node); err != nil {
			state.problem = objects.ErrorText(err)
			continue
		}
		if node.CutOff != "" {
			state.cutOff = append(state.cutOff, pods[i].Spec.NodeName)
			continue
		}
		if state.asked == 0 || node.Ports < state.ports {
			state.ports = node.Ports
		}
		if state.asked == 0 || node.LastSync.Before(state.lastSync) {
			state.lastSync = node.LastSync
		}
		if node.Damage != "" {
			state.damaged = append(state.damaged, node.Node+": "+node.Damage)
		}
		state.failed += node.FailedSyncs
		state.asked++
	}
	return state
}

// describe puts the state into words; now is on the clock of the cluster.
func (state proxyState) describe(now time.Time) string {
	switch {
	case state.asked == 0 && state.problem != "":
		return "not asked: " + state.problem
	case state.asked == 0:
		return "not asked: no pod of seamark-proxy"
	}
	return fmt.Sprintf("%d of %d proxies asked: at least %d ports of services each, last synced %s ago",
		state.asked, state.pods, state.ports,
		duration.HumanDuration(max(0, now.Sub(state.lastSync))))
}

// maxProxies is how many nodes are asked about one service: all program the same rules, and a user
// waits at the terminal.
const maxProxies = 20

// askProxies asks the proxies what they have programmed for a service. notAsked is why some or all
// were not asked.
func (c *Cluster) askProxies(ctx context.Context, key types.NamespacedName) (nodes []programmed.Service, notAsked string) {
	pods, err := c.pods(ctx, proxyComponent)
	if err != nil {
		return nil, objects.ErrorText(err)
	}
	if len(pods) == 0 {
		return nil, "no pod of seamark-proxy"
	}
	if len(pods) > maxProxies {
		notAsked = fmt.Sprintf("only the first %d nodes are asked", maxProxies)
		pods = pods[:maxProxies]
	}
	reader, err := newProxyReader(ctx, c)
	if err != nil {
		return nil, objects.ErrorText(err)
	}
	for i := range pods {
		var node programmed.Service
		err := reader.get(ctx, &pods[i], programmed.Path, map[string]string{programmed.ServiceParameter: key.String()}, &node)
		if err != nil {
			notAsked = fmt.Sprintf("pod %s: %s", pods[i].Name, objects.ErrorText(err))
			continue
		}
		if node.CutOff != "" {
			node.Node = pods[i].Spec.NodeName
		}
		nodes = append(nodes, node)
	}
	return nodes, notAsked
}
