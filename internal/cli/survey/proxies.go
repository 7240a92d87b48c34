package survey

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// proxyState is what the proxies of a cluster say of themselves.
type proxyState struct {
	asked, pods int
	// services is what the node with the fewest has programmed, errors all failed transactions.
	services, errors float64
	lastSync         time.Time // the oldest
	problem          string
}

// readProxies reads the metrics of every seamark-proxy through the API server.
func (s *Cluster) readProxies(ctx context.Context) proxyState {
	var state proxyState
	pods, err := s.pods(ctx, "proxy")
	if err != nil {
		state.problem = objects.ErrorText(err)
		return state
	}
	state.pods = len(pods)
	for i := range pods {
		values, err := scrape(ctx, s.Config, &pods[i])
		if err != nil {
			state.problem = objects.ErrorText(err)
			continue
		}
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

// describe sums up what the proxies have programmed; now is on their cluster's clock.
func (state proxyState) describe(now time.Time) string {
	switch {
	case state.asked == 0 && state.problem != "":
		return "not asked: " + state.problem
	case state.asked == 0:
		return "not asked: no pod of seamark-proxy"
	}
	return fmt.Sprintf("%d of %d proxies asked: at least %.0f ports of services each, in step %s ago", state.asked, state.pods, state.services,
		duration.HumanDuration(max(0, now.Sub(state.lastSync))))
}

// mostProxies is how many nodes are asked about one service: all have the same work to do, and somebody waits.
const mostProxies = 20

// askProxies asks the proxies what they have programmed for a service, through the API server. notAsked is why some or all were not.
func (s *Cluster) askProxies(ctx context.Context, key types.NamespacedName) (nodes []programmed.Service, notAsked string) {
	pods, err := s.pods(ctx, "proxy")
	if err != nil {
		return nil, objects.ErrorText(err)
	}
	clients, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return nil, objects.ErrorText(err)
	}
	if len(pods) == 0 {
		return nil, "no pod of seamark-proxy"
	}
	if len(pods) > mostProxies {
		notAsked = fmt.Sprintf("%d nodes are enough", mostProxies)
		pods = pods[:mostProxies]
	}
	for i := range pods {
		body, err := clients.CoreV1().Pods(pods[i].Namespace).ProxyGet("http", pods[i].Name, metricsPort, programmed.Path,
			map[string]string{programmed.ServiceParameter: key.String()}).DoRaw(ctx)
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

// scrape reads the metrics of a pod through the API server: every series without a timestamp, by name and labels.
func scrape(ctx context.Context, config *rest.Config, pod *corev1.Pod) (map[string]float64, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	body, err := clients.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, metricsPort, "metrics", nil).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(body)), nil
}

// parseMetrics reads the text format as far as our own daemons use it.
func parseMetrics(text string) map[string]float64 {
	values := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		series, number, ok := cutLast(lines.Text(), " ")
		if !ok || strings.HasPrefix(series, "#") {
			continue
		}
		if value, err := strconv.ParseFloat(number, 64); err == nil {
			values[series] = value
		}
	}
	return values
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
