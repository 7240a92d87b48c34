//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of cluster DNS, the same as in clusters of kubeadm.
const (
	dnsName        = "coredns"
	dnsServiceName = "kube-dns"
	dnsProgram     = "seamark-dns"
)

var dnsLabels = map[string]string{"k8s-app": "kube-dns"}

// corefile is that of kubeadm, except that the TTL of the cluster's own names is five seconds,
// because tests and demos change services often.
const corefile = `.:53 {
    errors
    health {
        lameduck 3s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }
    prometheus :9153
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
    cache 30 {
        disable success cluster.local
        disable denial cluster.local
    }
    loop
    reload 4s 1s
    loadbalance
}
`

// ensureDNS creates the missing objects of cluster DNS and waits until it is ready. Existing
// objects are not changed, because the user or Seamark may have changed them: the ConfigMap
// delegates zones.
func (c cluster) ensureDNS(ctx context.Context, from imageFile) error {
	if !from.recipe.Holds(dnsProgram) {
		return fmt.Errorf("cluster %s: the image lacks %s, which serves cluster DNS", c.name, dnsProgram)
	}
	if err := c.createDNS(ctx, from.name); err != nil {
		return fmt.Errorf("cluster %s: deploy cluster DNS: %w", c.name, err)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, kubelet, "cluster DNS", func(ctx context.Context) error {
		if err := c.dnsAnswers(ctx); err != nil {
			return fmt.Errorf("%w (%s)", err, podProblems(ctx, client))
		}
		return nil
	})
}

// dnsAnswers checks that cluster DNS resolves the name of the API server.
func (c cluster) dnsAnswers(ctx context.Context) error {
	kind := dns.TypeA
	if c.nodeIP().Is6() {
		kind = dns.TypeAAAA
	}
	return c.queryDNS(ctx, "kubernetes.default.svc.cluster.local.", kind)
}

// awaitClusterset waits until cluster DNS forwards clusterset.local, which takes some seconds after
// its ConfigMap has changed.
func (c cluster) awaitClusterset(ctx context.Context) error {
	return c.await(ctx, kubelet, "cluster DNS to answer for clusterset.local", func(ctx context.Context) error {
		return c.queryDNS(ctx, "clusterset.local.", dns.TypeSOA)
	})
}

// queryDNS queries cluster DNS from the node and fails when there is no answer.
func (c cluster) queryDNS(ctx context.Context, name string, kind uint16) error {
	question := new(dns.Msg)
	question.SetQuestion(name, kind)
	server := net.JoinHostPort(c.dnsIP(0).String(), "53")
	return inNetns(c.netns, func() error {
		answer, _, err := (&dns.Client{Timeout: 2 * time.Second}).ExchangeContext(ctx, question, server)
		if err != nil {
			return fmt.Errorf("query %s: %w", server, err)
		}
		if len(answer.Answer) == 0 {
			return fmt.Errorf("query %s for %s: %s without an answer", server, name, dns.RcodeToString[answer.Rcode])
		}
		return nil
	})
}

// podProblems returns the state of the pods of cluster DNS, with the reasons of those that wait or
// failed.
func podProblems(ctx context.Context, client *kubernetes.Clientset) string {
	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		return err.Error()
	}
	problems := "there is no pod yet"
	for _, pod := range pods.Items {
		problems = fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
		for _, container := range pod.Status.ContainerStatuses {
			if waiting := container.State.Waiting; waiting != nil {
				problems += fmt.Sprintf(", %s %s", waiting.Reason, waiting.Message)
			}
			if ended := container.LastTerminationState.Terminated; ended != nil {
				problems += fmt.Sprintf(", ended with %d: %s", ended.ExitCode, ended.Message)
			}
		}
	}
	return problems
}

// createDNS creates each object that does not exist. It reads first: creating a Service that exists
// fails because its ClusterIP is taken, not because it exists.
func (c cluster) createDNS(ctx context.Context, image string) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for _, object := range c.dnsObjects(image) {
		existing := object.DeepCopyObject().(client.Object)
		err := api.Get(ctx, client.ObjectKeyFromObject(object), existing)
		if apierrors.IsNotFound(err) {
			err = api.Create(ctx, object)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func (c cluster) dnsObjects(image string) []client.Object {
	meta := metav1.ObjectMeta{Name: dnsName, Namespace: metav1.NamespaceSystem, Labels: dnsLabels}
	named := metav1.ObjectMeta{Name: "system:coredns"}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.ClusterRole{ObjectMeta: named, Rules: dnsRules()},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: named,
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: dnsName, Namespace: metav1.NamespaceSystem}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
		},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": corefile}},
		c.dnsService(),
		dnsDeployment(meta, image),
	}
}

func dnsRules() []rbacv1.PolicyRule {
	read := []string{"list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "pods", "namespaces"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
	}
}

func (c cluster) dnsService() *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: dnsServiceName, Namespace: metav1.NamespaceSystem, Labels: dnsLabels},
		Spec: corev1.ServiceSpec{
			Selector: dnsLabels,
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromString("dns")},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, TargetPort: intstr.FromString("dns-tcp")},
				{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9153, TargetPort: intstr.FromString("metrics")},
			},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
		},
	}
	for i := range c.serviceCIDRs {
		service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, c.dnsIP(i).String())
	}
	service.Spec.ClusterIP = service.Spec.ClusterIPs[0]
	if len(c.serviceCIDRs) > 1 {
		service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	return service
}

func dnsDeployment(meta metav1.ObjectMeta, image string) *appsv1.Deployment {
	probe := func(path string, port int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}},
			PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 10,
		}
	}
	container := corev1.Container{
		Name: dnsName, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{dnsProgram}, Args: []string{"-conf", "/etc/coredns/Corefile"},
		Ports: []corev1.ContainerPort{
			{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP},
			{Name: "dns-tcp", ContainerPort: 53, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: 9153, Protocol: corev1.ProtocolTCP},
		},
		VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/coredns", ReadOnly: true}},
		ReadinessProbe: probe("/ready", 8181), LivenessProbe: probe("/health", 8080),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
		},
	}
	return &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: dnsLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: dnsLabels},
				Spec: corev1.PodSpec{
					ServiceAccountName: dnsName, PriorityClassName: "system-cluster-critical",
					DNSPolicy:  corev1.DNSDefault, // it forwards to the node's resolver, not to itself
					Containers: []corev1.Container{container},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: dnsName},
					}}}},
				},
			},
		},
	}
}
