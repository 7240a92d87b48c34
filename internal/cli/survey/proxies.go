package survey

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// proxyState is the state of the proxies of a cluster by their metrics.
type proxyState struct {
	// pods is how many there are, asked how many of them answered.
	pods, asked int
	// services is how many the node with the fewest has programmed; errors counts the failed
	// transactions of all nodes.
	services, errors float64
	// lastSync is that of the node that synced longest ago.
	lastSync time.Time
	problem  string
}

// readProxies reads the metrics of every seamark-proxy.
func (c *Cluster) readProxies(ctx context.Context) proxyState {
	var state proxyState
	pods, err := c.pods(ctx, proxyComponent)
	if err != nil {
		state.problem = objects.ErrorText(err)
		return state
	}
	state.pods = len(pods)
	for i := range pods {
		body, err := getFromPod(ctx, c.Config, &pods[i], "metrics", nil)
		if err != nil {
			state.problem = objects.ErrorText(err)
			continue
		}
		values := parseMetrics(string(body))
		services := values[`seamark_proxy_programmed_elements{set="services"}`]
		synced := time.UnixMilli(int64(values["seamark_proxy_last_sync_timestamp_seconds"] * 1000))
		if state.asked == 0 || services < state.services {
			state.services = services
		}
		if state.asked == 0 || synced.Before(state.lastSync) {
			state.lastSync = synced
		}
		state.errors += values["seamark_proxy_sync_errors_total"]
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
	return fmt.Sprintf("%d of %d proxies asked: at least %.0f ports of services each, last synced %s ago",
		state.asked, state.pods, state.services,
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
	for i := range pods {
		body, err := getFromPod(ctx, c.Config, &pods[i], programmed.Path, map[string]string{programmed.ServiceParameter: key.String()})
		var node programmed.Service
		if err == nil {
			err = json.Unmarshal(body, &node)
		}
		if err != nil {
			notAsked = fmt.Sprintf("pod %s: %s", pods[i].Name, objects.ErrorText(err))
			continue
		}
		nodes = append(nodes, node)
	}
	return nodes, notAsked
}

// parseMetrics returns the value of every series of the text format that has no timestamp, by name
// and labels: Seamark's daemons write no others.
func parseMetrics(text string) map[string]float64 {
	values := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		space := strings.LastIndex(line, " ")
		if space < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if value, err := strconv.ParseFloat(line[space+1:], 64); err == nil {
			values[line[:space]] = value
		}
	}
	return values
}
