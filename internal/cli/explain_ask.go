package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

const (
	// askTimeout is how long a DNS server may take: it answers from memory.
	askTimeout = 3 * time.Second
	// dnsPort is the port of seamark-dns in its pods, metricsPort that of all our daemons' metrics.
	dnsPort     = 1053
	metricsPort = "9441"
)

// askDNS asks what a name is answered with in a cluster: a server that the user names, or else a pod of seamark-dns, through the
// API server, which works from wherever the API server can be reached.
func (s *site) askDNS(ctx context.Context, name, server string) *explain.Answer {
	if server != "" {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(server, "53")
		}
		return query(ctx, "udp", server, server, name)
	}
	pod, why := s.readyPod(ctx, "dns")
	if pod == nil {
		return &explain.Answer{NotAsked: why}
	}
	address, stop, err := s.forward(ctx, pod, dnsPort)
	if err != nil {
		return &explain.Answer{NotAsked: fmt.Sprintf("pod %s cannot be reached through the API server: %s", pod.Name, plainError(err))}
	}
	defer stop()
	return query(ctx, "tcp", address, "pod "+pod.Name, name)
}

// query asks for both address families. The response code is that of the first.
func query(ctx context.Context, network, address, called, name string) *explain.Answer {
	answer := &explain.Answer{Server: called}
	exchange := &dns.Client{Net: network, Timeout: askTimeout}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		question := new(dns.Msg)
		question.SetQuestion(name, kind)
		reply, _, err := exchange.ExchangeContext(ctx, question, address)
		if err != nil {
			answer.Problem = plainError(err)
			return answer
		}
		if answer.Code == "" {
			answer.Code = dns.RcodeToString[reply.Rcode]
		}
		for _, record := range reply.Answer {
			switch typed := record.(type) {
			case *dns.A:
				answer.Addresses = append(answer.Addresses, typed.A.String())
			case *dns.AAAA:
				answer.Addresses = append(answer.Addresses, typed.AAAA.String())
			}
		}
	}
	slices.SortFunc(answer.Addresses, func(a, b string) int {
		x, _ := netip.ParseAddr(a)
		y, _ := netip.ParseAddr(b)
		return x.Compare(y)
	})
	return answer
}

// readyPod is a ready pod of one of our workloads, or why there is none.
func (s *site) readyPod(ctx context.Context, component string) (*corev1.Pod, string) {
	pods, err := s.pods(ctx, component)
	if err != nil {
		return nil, fmt.Sprintf("the pods of seamark-%s cannot be read: %s", component, plainError(err))
	}
	for i := range pods {
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return &pods[i], ""
			}
		}
	}
	return nil, fmt.Sprintf("no pod of seamark-%s is ready; name a server with --dns", component)
}

func (s *site) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.client.List(ctx, &pods, client.InNamespace(objects.AgentNamespace),
		client.MatchingLabels{"app.kubernetes.io/name": "seamark", "app.kubernetes.io/component": component})
	return pods.Items, err
}

// forward makes a port of a pod reachable at an address of this machine, until stop is called.
func (s *site) forward(ctx context.Context, pod *corev1.Pod, port int) (address string, stop func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(s.config)
	if err != nil {
		return "", nil, err
	}
	target, err := url.Parse(s.config.Host)
	if err != nil {
		return "", nil, err
	}
	target = target.JoinPath("api/v1/namespaces", pod.Namespace, "pods", pod.Name, "portforward")
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport, Timeout: lookTimeout}, http.MethodPost, target)
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return "", nil, err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		return "", nil, errors.Join(err, ctx.Err())
	case <-time.After(lookTimeout):
		cancel()
		return "", nil, errors.New("no answer in time")
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		cancel()
		return "", nil, err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), func() { cancel(); <-ended }, nil
}

// proxyState is what the proxies of a cluster say of themselves.
type proxyState struct {
	asked, pods int
	// services is what the node with the fewest has programmed, errors all failed transactions.
	services, errors float64
	lastSync         time.Time // the oldest
	problem          string
}

// readProxies reads the metrics of every seamark-proxy through the API server.
func (s *site) readProxies(ctx context.Context) proxyState {
	var state proxyState
	pods, err := s.pods(ctx, "proxy")
	if err != nil {
		state.problem = plainError(err)
		return state
	}
	state.pods = len(pods)
	for i := range pods {
		values, err := scrape(ctx, s.config, &pods[i])
		if err != nil {
			state.problem = plainError(err)
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
func (s *site) askProxies(ctx context.Context, key types.NamespacedName) (nodes []programmed.Service, notAsked string) {
	pods, err := s.pods(ctx, "proxy")
	if err != nil {
		return nil, plainError(err)
	}
	clients, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return nil, plainError(err)
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
			notAsked = fmt.Sprintf("pod %s: %s", pods[i].Name, plainError(err))
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
