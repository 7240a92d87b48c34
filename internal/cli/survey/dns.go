package survey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
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
func (s *Cluster) askDNS(ctx context.Context, name, server string) *explain.Answer {
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
		return &explain.Answer{NotAsked: fmt.Sprintf("pod %s cannot be reached through the API server: %s", pod.Name, objects.ErrorText(err))}
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
			answer.Problem = objects.ErrorText(err)
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
func (s *Cluster) readyPod(ctx context.Context, component string) (*corev1.Pod, string) {
	pods, err := s.pods(ctx, component)
	if err != nil {
		return nil, fmt.Sprintf("the pods of seamark-%s cannot be read: %s", component, objects.ErrorText(err))
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

func (s *Cluster) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(objects.AgentNamespace),
		client.MatchingLabels{"app.kubernetes.io/name": "seamark", "app.kubernetes.io/component": component})
	return pods.Items, err
}

// forward makes a port of a pod reachable at an address of this machine, until stop is called.
func (s *Cluster) forward(ctx context.Context, pod *corev1.Pod, port int) (address string, stop func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(s.Config)
	if err != nil {
		return "", nil, err
	}
	target, err := url.Parse(s.Config.Host)
	if err != nil {
		return "", nil, err
	}
	target = target.JoinPath("api/v1/namespaces", pod.Namespace, "pods", pod.Name, "portforward")
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport, Timeout: requestTimeout}, http.MethodPost, target)
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
	case <-time.After(requestTimeout):
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
