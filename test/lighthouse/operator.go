package lighthouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/test/harness"
)

const (
	finalizer  = "submariner.io/cleanup"
	dnsService = "submariner-lighthouse-coredns"
	dnsBegin   = "#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT\n"
	dnsEnd     = "#lighthouse-end\n"
	reconcile  = 200 * time.Millisecond
)

var (
	clusterDNS     = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "coredns"}
	submarinerKind = schema.GroupVersionKind{Group: "submariner.io", Version: "v1alpha1", Kind: "Submariner"}
	discoveryKind  = schema.GroupVersionKind{Group: "submariner.io", Version: "v1alpha1", Kind: "ServiceDiscovery"}
)

// Operator does what Submariner's operator 0.24 does for Lighthouse: it writes the CRDs at its
// start, keeps the ServiceDiscovery as the Submariner resource says, runs Lighthouse's agent, and
// writes the forward block again and again. When service discovery is disabled, it takes the block
// out, ends the agent, and runs its uninstall job.
type Operator struct {
	agent *Agent

	mu   sync.Mutex // held while it reconciles
	stop context.CancelFunc
	done chan struct{}
}

// Install creates what `subctl join` creates in the agent's cluster: the Submariner resource, the
// cluster's DNS as kubeadm has it, and Lighthouse's DNS Service. ids are all clusters that
// Submariner connects. It returns the operator, which is not started.
func (a *Agent) Install(t testing.TB, ids ...string) *Operator {
	t.Helper()
	ensure(t, a.Client, namespace(metav1.NamespaceSystem))
	ensure(t, a.Client, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterDNS.Namespace, Name: clusterDNS.Name},
		Data:       map[string]string{"Corefile": ".:53 {\n    errors\n    reload\n    kubernetes cluster.local\n}\n"},
	})
	ensure(t, a.Client, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: dnsService},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 53}}},
	})
	harness.Eventually(t, "Submariner's kinds are served in "+a.ID, func() error {
		err := a.Client.Create(t.Context(), Submariner(a.ID))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	for _, id := range ids {
		harness.Eventually(t, "the clusters of Submariner exist in "+a.ID, func() error {
			err := a.Client.Create(t.Context(), clusterOf(id))
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	o := &Operator{agent: a}
	t.Cleanup(o.Stop)
	return o
}

// Submariner returns the Submariner resource of a cluster as `subctl join` creates it.
func Submariner(id string) *unstructured.Unstructured {
	cr := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"version": "0.24.0", "clusterID": id, "serviceDiscoveryEnabled": true, "repository": "quay.io/submariner",
		"broker": "k8s", "brokerK8sApiServer": "broker.example", "brokerK8sApiServerToken": "token", "brokerK8sCA": "",
		"brokerK8sRemoteNamespace": BrokerNamespace, "ceIPSecPSK": "", "clusterCIDR": "", "serviceCIDR": "",
		"namespace": OperatorNamespace, "natEnabled": false, "debug": false, "ceIPSecDebug": false,
	}}}
	cr.SetGroupVersionKind(submarinerKind)
	cr.SetNamespace(OperatorNamespace)
	cr.SetName("submariner")
	return cr
}

// clusterCRD returns a CRD with which the API server accepts Submariner's Clusters. The real one is
// not in a module that is published.
func clusterCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "clusters.submariner.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "submariner.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Cluster", ListKind: "ClusterList", Plural: "clusters", Singular: "cluster"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
}

func clusterOf(id string) *unstructured.Unstructured {
	c := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cluster_id": id}}}
	c.SetGroupVersionKind(schema.GroupVersionKind{Group: "submariner.io", Version: "v1", Kind: "Cluster"})
	c.SetNamespace(OperatorNamespace)
	c.SetName(id)
	return c
}

// Start starts the operator. It returns its error if it cannot write the CRDs, as the real one
// exits then. Starting a running operator restarts it.
func (o *Operator) Start(t testing.TB) error {
	t.Helper()
	o.Stop()
	if err := WriteCRDs(t, o.agent.Client); err != nil {
		return err
	}
	if err := o.setDeployment(t.Context(), "submariner-operator", true); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.stop, o.done = cancel, make(chan struct{})
	go func() {
		defer close(o.done)
		for ctx.Err() == nil {
			if err := o.reconcile(ctx, t); err != nil && ctx.Err() == nil {
				t.Logf("the operator of %s: %v", o.agent.ID, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(reconcile):
			}
		}
	}()
	return nil
}

// Stop stops the operator. What it started goes on.
func (o *Operator) Stop() {
	if o.stop == nil {
		return
	}
	o.stop()
	<-o.done
	o.stop = nil
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = o.setDeployment(ctx, "submariner-operator", false) // the control plane may have stopped
}

// RestartAgent kills Lighthouse's agent and starts it again, if it runs.
func (o *Operator) RestartAgent(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.agent.process != nil {
		o.agent.Restart(t)
	}
}

// AgentRuns reports whether Lighthouse's agent runs.
func (o *Operator) AgentRuns() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.agent.process != nil
}

func (o *Operator) reconcile(ctx context.Context, t testing.TB) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	cr := &unstructured.Unstructured{}
	cr.SetGroupVersionKind(submarinerKind)
	if err := o.agent.Client.Get(ctx, types.NamespacedName{Namespace: OperatorNamespace, Name: "submariner"}, cr); err != nil {
		return err
	}
	enabled, _, _ := unstructured.NestedBool(cr.Object, "spec", "serviceDiscoveryEnabled")
	sd, err := o.discovery(ctx)
	if err != nil {
		return err
	}
	switch {
	case sd == nil && !enabled:
		return nil
	case sd != nil && (!enabled || sd.GetDeletionTimestamp() != nil):
		return o.clean(ctx, t, sd)
	}
	if sd, err = o.ensureDiscovery(ctx, cr, sd); err != nil {
		return err
	}
	if o.agent.hasExited() {
		t.Logf("Lighthouse's agent of %s has ended; its pod starts it again", o.agent.ID)
	}
	if o.agent.lacksCA() {
		t.Logf("Lighthouse's agent of %s started while the broker was away; its user restarts it", o.agent.ID)
		o.agent.Kill()
	}
	if o.agent.process == nil || o.agent.hasExited() {
		o.agent.Start(t)
	}
	if err := o.agent.startDNS(ctx); err != nil {
		return err
	}
	return errors.Join(o.setDeployment(ctx, AgentAccount, true), o.setDeployment(ctx, dnsService, true), o.writeDNS(ctx, sd, true))
}

func (o *Operator) discovery(ctx context.Context) (*unstructured.Unstructured, error) {
	sd := &unstructured.Unstructured{}
	sd.SetGroupVersionKind(discoveryKind)
	err := o.agent.Client.Get(ctx, types.NamespacedName{Namespace: OperatorNamespace, Name: "service-discovery"}, sd)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	return sd, err
}

// ensureDiscovery creates the ServiceDiscovery, or copies the setting of the DNS to it.
func (o *Operator) ensureDiscovery(ctx context.Context, cr, sd *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	custom, found, _ := unstructured.NestedMap(cr.Object, "spec", "coreDNSCustomConfig")
	if sd == nil {
		sd = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"version": "0.24.0", "clusterID": o.agent.ID, "namespace": OperatorNamespace, "brokerK8sApiServer": "broker.example",
			"brokerK8sApiServerToken": "token", "brokerK8sCA": "", "brokerK8sRemoteNamespace": BrokerNamespace, "debug": false,
		}}}
		sd.SetGroupVersionKind(discoveryKind)
		sd.SetNamespace(OperatorNamespace)
		sd.SetName("service-discovery")
		sd.SetFinalizers([]string{finalizer})
		if found {
			if err := unstructured.SetNestedMap(sd.Object, custom, "spec", "coreDNSCustomConfig"); err != nil {
				return sd, err
			}
		}
		return sd, o.agent.Client.Create(ctx, sd)
	}
	before, _, _ := unstructured.NestedMap(sd.Object, "spec", "coreDNSCustomConfig")
	if fmt.Sprint(before) == fmt.Sprint(custom) {
		return sd, nil
	}
	unstructured.RemoveNestedField(sd.Object, "spec", "coreDNSCustomConfig")
	if found {
		if err := unstructured.SetNestedMap(sd.Object, custom, "spec", "coreDNSCustomConfig"); err != nil {
			return sd, err
		}
	}
	return sd, o.agent.Client.Update(ctx, sd)
}

// uninstallPod returns the pod in which the uninstall job runs, as far as the API server checks it.
func uninstallPod() *corev1.Pod {
	const name = AgentAccount + "-uninstall"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			ServiceAccountName: AgentAccount, Containers: []corev1.Container{{Name: name, Image: "example.org/" + AgentAccount + ":0.24.0"}},
		},
	}
}

// uninstallAttempts stands for the two minutes that the operator gives the uninstall job.
const uninstallAttempts = 2

func (o *Operator) clean(ctx context.Context, t testing.TB, sd *unstructured.Unstructured) error {
	if sd.GetDeletionTimestamp() == nil {
		return o.agent.Client.Delete(ctx, sd)
	}
	if err := o.writeDNS(ctx, sd, false); err != nil {
		return err
	}
	o.agent.Kill()
	o.agent.stopDNS()
	for _, name := range []string{AgentAccount, dnsService} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: name}}
		if err := o.agent.Client.Delete(ctx, d); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if err := o.agent.Client.Create(ctx, uninstallPod(), client.DryRunAll); err == nil {
		for range uninstallAttempts {
			if o.agent.Uninstall(t) == nil {
				break
			}
		}
	}
	sd.SetFinalizers(slices.DeleteFunc(sd.GetFinalizers(), func(f string) bool { return f == finalizer }))
	return o.agent.Client.Update(ctx, sd)
}

// writeDNS writes or removes the forward block, in the cluster's own Corefile or in the ConfigMap
// that the resource names.
func (o *Operator) writeDNS(ctx context.Context, sd *unstructured.Unstructured, forward bool) error {
	service := &corev1.Service{}
	if err := o.agent.Client.Get(ctx, types.NamespacedName{Namespace: OperatorNamespace, Name: dnsService}, service); err != nil {
		return err
	}
	key := clusterDNS
	name, _, _ := unstructured.NestedString(sd.Object, "spec", "coreDNSCustomConfig", "configMapName")
	if name != "" {
		ns, _, _ := unstructured.NestedString(sd.Object, "spec", "coreDNSCustomConfig", "namespace")
		key = types.NamespacedName{Namespace: ns, Name: name}
	}
	config := &corev1.ConfigMap{}
	err := o.agent.Client.Get(ctx, key, config)
	if apierrors.IsNotFound(err) && name != "" {
		config.Namespace, config.Name = key.Namespace, key.Name
		return o.agent.Client.Create(ctx, config)
	}
	if err != nil {
		return err
	}
	data := map[string]string{}
	if name != "" && forward {
		data["lighthouse.server"] = "clusterset.local:53 {\n    forward . " + service.Spec.ClusterIP + "\n}\n"
	} else if name == "" {
		data["Corefile"] = withoutBlock(config.Data["Corefile"])
		if forward {
			data["Corefile"] = dnsBegin + "clusterset.local:53 {\n    forward . " + service.Spec.ClusterIP + "\n}\n" + dnsEnd + data["Corefile"]
		}
	}
	if fmt.Sprint(config.Data) == fmt.Sprint(data) {
		return nil
	}
	config.Data = data
	return o.agent.Client.Update(ctx, config)
}

func withoutBlock(corefile string) string {
	before, rest, found := strings.Cut(corefile, dnsBegin)
	if !found {
		return corefile
	}
	_, after, _ := strings.Cut(rest, dnsEnd)
	return before + after
}

// setDeployment creates a Deployment, and sets the status that a controller would.
func (o *Operator) setDeployment(ctx context.Context, name string, available bool) error {
	return SetDeployment(ctx, o.agent.Client, OperatorNamespace, name, available)
}

// SetDeployment creates a Deployment if it is missing, and sets its status as the controllers of a
// cluster with nodes would.
func SetDeployment(ctx context.Context, c client.Client, ns, name string, available bool) error {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{}
	err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, d)
	if apierrors.IsNotFound(err) {
		d.Namespace, d.Name = ns, name
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: name, Image: "example.org/" + name + ":0.24.0"}}
		err = c.Create(ctx, d)
	}
	replicas := int32(0)
	if available {
		replicas = 1
	}
	if err != nil || d.Status.AvailableReplicas == replicas {
		return err
	}
	d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = replicas, replicas, replicas
	return c.Status().Update(ctx, d)
}
