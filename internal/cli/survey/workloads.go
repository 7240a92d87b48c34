package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// DNSServer is the name of the Deployment, the Service and the ConfigMap of seamark-dns.
const DNSServer = objects.DNSService

// The other workloads of Seamark in a member, as the chart names them.
const (
	agentDeployment = "seamark-agent"
	proxyDaemonSet  = "seamark-proxy"
)

// Components of Seamark, as the chart labels their pods.
const (
	agentComponent = "agent"
	dnsComponent   = "dns"
	proxyComponent = "proxy"
)

// metricsPort is the port of the pods of every component for metrics and questions about their
// state.
const metricsPort = "9441"

// deployment returns how many pods of a Deployment of Seamark are ready; nil when it does not exist
// or may not be read.
func (c *Cluster) deployment(ctx context.Context, name string) *explain.Workload {
	d, err := GetIfServed(ctx, c.Client, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}, &appsv1.Deployment{})
	if err != nil || d == nil {
		return nil
	}
	return &explain.Workload{Ready: d.Status.ReadyReplicas, Want: ptr.Deref(d.Spec.Replicas, 1)}
}

// dataPlaneOfAgent returns the data plane that the chart gave to the agent. It is empty when the
// agent does not run as a Deployment, or goes by its membership.
func (c *Cluster) dataPlaneOfAgent(ctx context.Context) v1alpha1.DataPlane {
	key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: agentDeployment}
	d, err := GetIfServed(ctx, c.Client, key, &appsv1.Deployment{})
	if err != nil || d == nil {
		return ""
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			if name, found := strings.CutPrefix(arg, "--dataplane="); found {
				return v1alpha1.DataPlane(name)
			}
		}
	}
	return ""
}

// daemonSet does the same as deployment for a DaemonSet.
func (c *Cluster) daemonSet(ctx context.Context, name string) *explain.Workload {
	d, err := GetIfServed(ctx, c.Client, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}, &appsv1.DaemonSet{})
	if err != nil || d == nil {
		return nil
	}
	return &explain.Workload{Ready: d.Status.NumberReady, Want: d.Status.DesiredNumberScheduled}
}

// pods lists the pods of a component.
func (c *Cluster) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := c.Client.List(ctx, &pods, client.InNamespace(objects.AgentNamespace),
		client.MatchingLabels{"app.kubernetes.io/name": "seamark", "app.kubernetes.io/component": component})
	return pods.Items, err
}

// getFromPod requests a path from the metrics port of a pod, through the API server's proxy: pods
// may not be reachable from the user's machine.
func getFromPod(ctx context.Context, config *rest.Config, pod *corev1.Pod, path string, query map[string]string) ([]byte, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return clients.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, metricsPort, path, query).DoRaw(ctx)
}

// proxyReader reads from pods of seamark-proxy, which admit only requests with a token: they use
// their node's network.
type proxyReader struct {
	clients kubernetes.Interface
	token   string
}

// tokenSeconds is the shortest life that API servers give a token.
const tokenSeconds = 600

func newProxyReader(ctx context.Context, c *Cluster) (*proxyReader, error) {
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	if c.ProxyToken != nil {
		token, err := c.ProxyToken(ctx)
		return &proxyReader{clients, token}, err
	}
	token, err := NewProxyToken(ctx, clients)
	return &proxyReader{clients, token}, err
}

// NewProxyToken requests a token with which proxies are asked. It lives for ten minutes.
func NewProxyToken(ctx context.Context, clients kubernetes.Interface) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)}}
	request, err := clients.CoreV1().ServiceAccounts(objects.AgentNamespace).
		CreateToken(ctx, programmed.ReaderAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token of ServiceAccount %s: %w", programmed.ReaderAccount, err)
	}
	return request.Status.Token, nil
}

func (r *proxyReader) get(ctx context.Context, pod *corev1.Pod, path string, query map[string]string, into any) error {
	request := r.clients.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").SubResource("proxy").
		Name(net.JoinSchemeNamePort("https", pod.Name, metricsPort)).Suffix(path).SetHeader(programmed.TokenHeader, r.token)
	for key, value := range query {
		request = request.Param(key, value)
	}
	body, err := request.DoRaw(ctx)
	var refusal programmed.Refusal
	cutOff := apierrors.IsServiceUnavailable(err) && json.Unmarshal(body, &refusal) == nil && refusal.CutOff != ""
	if err != nil && !cutOff {
		return err
	}
	return json.Unmarshal(body, into)
}
