package survey

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
)

// DNSServer is the name of the Deployment, the Service and the ConfigMap of seamark-dns.
const DNSServer = "seamark-dns"

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

// daemonSet does the same for a DaemonSet.
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
