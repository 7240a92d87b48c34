package survey

import (
	"cmp"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// queryTimeout is how long a DNS server may take: it answers from memory.
	queryTimeout = 3 * time.Second
	// dnsPort is the port of seamark-dns in its pods.
	dnsPort = 1053
)

// askDNS resolves a name, without a dot at its end, with a server that the user chose or else with
// a pod of seamark-dns. The pod is asked through the API server, so that it need not be reachable
// from the user's machine.
func (c *Cluster) askDNS(ctx context.Context, name, server string) *explain.Answer {
	name += "."
	if server != "" {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(server, "53")
		}
		return query(ctx, "udp", server, server, name)
	}
	pod, problem := c.readyPod(ctx, dnsComponent)
	if pod == nil {
		return &explain.Answer{NotAsked: problem}
	}
	address, stop, err := c.forward(ctx, pod, dnsPort)
	if err != nil {
		return &explain.Answer{NotAsked: fmt.Sprintf("pod %s cannot be reached through the API server: %s", pod.Name, objects.ErrorText(err))}
	}
	defer stop()
	return query(ctx, "tcp", address, "pod "+pod.Name, name)
}

// query asks a server for the addresses of both families. The response code is that of the first
// family. label names the server for the user.
func query(ctx context.Context, network, address, label, name string) *explain.Answer {
	answer := &explain.Answer{Server: label}
	exchange := &dns.Client{Net: network, Timeout: queryTimeout}
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

// readyPod returns a ready pod of a component, or why there is none.
func (c *Cluster) readyPod(ctx context.Context, component string) (*corev1.Pod, string) {
	pods, err := c.pods(ctx, component)
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

// forward makes a port of a pod reachable at an address of this machine until stop is called.
func (c *Cluster) forward(ctx context.Context, pod *corev1.Pod, port int) (address string, stop func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return "", nil, err
	}
	target, err := url.Parse(c.Config.Host)
	if err != nil {
		return "", nil, err
	}
	target = target.JoinPath("api/v1/namespaces", pod.Namespace, "pods", pod.Name, "portforward")
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport, Timeout: requestTimeout}, http.MethodPost, target)
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)},
		ready, io.Discard, io.Discard)
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

// dnsConfig is how pods of a cluster resolve names of the clusterset.
type dnsConfig struct {
	// zone is the zone of the clusterset's names.
	zone string
	// addresses are those of the Service of seamark-dns.
	addresses []string
	// corefile is the configuration of the cluster's own DNS; problem is why it is not known.
	corefile, problem string
}

// readDNS reads how pods of the cluster resolve names of the clusterset.
func (c *Cluster) readDNS(ctx context.Context) dnsConfig {
	out := dnsConfig{zone: objects.DefaultZone}
	if service, err := readDNSService(ctx, c.Client); err == nil && service != nil {
		out.zone, out.addresses = zoneOf(service), service.Spec.ClusterIPs
	}
	key := types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "coredns"}
	config, err := GetIfServed(ctx, c.Client, key, &corev1.ConfigMap{})
	switch {
	case err != nil:
		out.problem = "ConfigMap kube-system/coredns cannot be read: " + objects.ErrorText(err)
	case config == nil:
		out.problem = fmt.Sprintf("there is no ConfigMap kube-system/coredns, so this cluster's DNS is configured in another way: "+
			"make sure that it forwards %s to seamark-dns", out.zone)
	case config.Data["Corefile"] == "":
		out.problem = fmt.Sprintf("ConfigMap kube-system/coredns has no Corefile: "+
			"make sure that this cluster's DNS forwards %s to seamark-dns", out.zone)
	default:
		out.corefile = config.Data["Corefile"]
	}
	return out
}

// Zone returns the zone of the clusterset's names in a cluster. It is the default one if the
// cluster has no seamark-dns, or if its Service may not be read.
func Zone(ctx context.Context, c client.Reader) string {
	service, err := readDNSService(ctx, c)
	if err != nil || service == nil {
		return objects.DefaultZone
	}
	return zoneOf(service)
}

func readDNSService(ctx context.Context, c client.Reader) (*corev1.Service, error) {
	return GetIfServed(ctx, c, types.NamespacedName{Namespace: objects.AgentNamespace, Name: DNSServer}, &corev1.Service{})
}

// zoneOf returns the zone in the annotation of the Service of seamark-dns. Charts before the
// annotation existed have the default zone, unless their user chose another.
func zoneOf(service *corev1.Service) string {
	return cmp.Or(service.Annotations[v1alpha1.AnnotationZone], objects.DefaultZone)
}
