package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

var probesPort = intstr.FromString("probes")

func bridgeResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
	}
}

// RemoveBridge stops a bridge, withdraws what it wrote on both brokers, and deletes it. It can be
// run again: it continues where it was.
func RemoveBridge(ctx context.Context, c client.Client, o BridgeOptions, timeout time.Duration) ([]brokeradmin.Step, error) {
	i := &installer{client: c}
	if err := i.delete(ctx, &appsv1.Deployment{ObjectMeta: bridgeMeta(objects.BridgeName)}); err != nil {
		return i.steps, err
	}
	if err := awaitNoPods(ctx, c, timeout); err != nil {
		return i.steps, err
	}
	secrets := &corev1.SecretList{}
	ofBridge := client.MatchingLabels{"app.kubernetes.io/component": "bridge"}
	if err := c.List(ctx, secrets, client.InNamespace(objects.AgentNamespace), ofBridge); err != nil {
		return i.steps, fmt.Errorf("list the Secrets of the bridge: %w", err)
	}
	for n := range secrets.Items {
		if err := i.withdraw(ctx, &secrets.Items[n], o); err != nil {
			return i.steps, err
		}
	}
	for n := range secrets.Items {
		if err := i.delete(ctx, &secrets.Items[n]); err != nil {
			return i.steps, err
		}
	}
	for _, obj := range []client.Object{
		&rbacv1.RoleBinding{ObjectMeta: bridgeMeta(objects.BridgeName)}, &rbacv1.Role{ObjectMeta: bridgeMeta(objects.BridgeName)},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: objects.BridgeName}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: objects.BridgeName}},
		&corev1.ServiceAccount{ObjectMeta: bridgeMeta(objects.BridgeName)},
	} {
		if err := i.delete(ctx, obj); err != nil {
			return i.steps, err
		}
	}
	return i.steps, nil
}

// delete deletes an object, if it exists.
func (i *installer) delete(ctx context.Context, obj client.Object) error {
	name := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.") + " " + obj.GetName()
	err := i.client.Delete(ctx, obj)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	if err == nil {
		i.steps = append(i.steps, brokeradmin.Step{Object: name, Action: brokeradmin.Deleted})
	}
	return nil
}

// awaitNoPods waits until no process of the bridge runs: it would write again what is withdrawn.
func awaitNoPods(ctx context.Context, c client.Client, timeout time.Duration) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.InNamespace(objects.AgentNamespace), client.MatchingLabels(bridgeLabels())); err != nil {
			return false, fmt.Errorf("list the pods of the bridge: %w", err)
		}
		return len(pods.Items) == 0, nil
	})
	if wait.Interrupted(err) {
		return errors.New("still waiting until the pods of the bridge have ended; run the command again")
	}
	return err
}

// withdraw withdraws what the bridge wrote with the credential of a Secret.
func (i *installer) withdraw(ctx context.Context, secret *corev1.Secret, o BridgeOptions) error {
	switch id := secret.Labels[mcsv1beta1.LabelSourceCluster]; {
	case secret.Name == objects.BridgeLighthouseSecret:
		return i.withdrawFromLighthouse(ctx, secret)
	case id != "" && secret.Name == objects.BridgeMembership(id):
		removed, err := brokeradmin.RemoveMember(ctx, o.Broker, o.Invite.Namespace, id)
		if err != nil {
			return fmt.Errorf("remove the Lighthouse cluster %s from Seamark's clusterset: %w", id, err)
		}
		if removed.Found {
			i.steps = append(i.steps, brokeradmin.Step{Object: "member " + id, Action: brokeradmin.Deleted})
		}
	}
	return nil
}

// withdrawFromLighthouse deletes what a bridge wrote on Lighthouse's broker, and takes its clusters
// off the aggregates. The ServiceImports of single clusters go last: they say what is left to do.
func (i *installer) withdrawFromLighthouse(ctx context.Context, secret *corev1.Secret) error {
	broker, namespace, err := lighthouseClient(secret)
	if err != nil {
		return err
	}
	imports, endpoints := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	in := client.InNamespace(namespace)
	if err := errors.Join(broker.List(ctx, imports, in), broker.List(ctx, endpoints, in)); err != nil {
		return fmt.Errorf("list the objects of Lighthouse's broker: %w", err)
	}
	listed := map[types.NamespacedName][]string{} // clusters of the bridge, by service
	var ours []client.Object
	for n := range imports.Items {
		if si := &imports.Items[n]; si.Annotations[objects.AnnotationBridge] != "" {
			key := types.NamespacedName{Namespace: si.Labels[labelSourceNamespace], Name: si.Labels[mcsv1alpha1.LabelServiceName]}
			listed[key], ours = append(listed[key], si.Labels[mcsv1alpha1.LabelSourceCluster]), append(ours, si)
		}
	}
	for n := range endpoints.Items {
		if s := &endpoints.Items[n]; s.Annotations[objects.AnnotationBridge] != "" {
			ours = append(ours, s)
		}
	}
	for n := range imports.Items {
		si := &imports.Items[n]
		key := types.NamespacedName{Namespace: si.Annotations[labelSourceNamespace], Name: si.Annotations[mcsv1alpha1.LabelServiceName]}
		if clusters := listed[key]; len(clusters) > 0 {
			if err := removeFromAggregate(ctx, broker, si, clusters); err != nil {
				return fmt.Errorf("update the aggregate of %s on Lighthouse's broker: %w", key, err)
			}
		}
	}
	for _, obj := range slices.Backward(ours) {
		if err := broker.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s on Lighthouse's broker: %w", obj.GetName(), err)
		}
	}
	if len(ours) > 0 {
		i.steps = append(i.steps, brokeradmin.Step{Object: fmt.Sprintf("%d objects on Lighthouse's broker", len(ours)), Action: brokeradmin.Deleted})
	}
	return nil
}

func removeFromAggregate(ctx context.Context, c client.Client, si *mcsv1alpha1.ServiceImport, clusters []string) error {
	si.Status.Clusters = slices.DeleteFunc(si.Status.Clusters, func(s mcsv1alpha1.ClusterStatus) bool { return slices.Contains(clusters, s.Cluster) })
	if len(si.Status.Clusters) > 0 {
		return c.Status().Update(ctx, si)
	}
	return client.IgnoreNotFound(c.Delete(ctx, si, client.Preconditions{ResourceVersion: ptr.To(si.ResourceVersion)}))
}

// lighthouseClient returns a client of Lighthouse's broker with the credential of a Secret, and its
// namespace.
func lighthouseClient(secret *corev1.Secret) (client.Client, string, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), mcsv1alpha1.Install(scheme)); err != nil {
		return nil, "", err
	}
	host := string(secret.Data[objects.LighthouseKeyServer])
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	c, err := client.New(&rest.Config{
		Host: host, BearerToken: string(secret.Data[objects.LighthouseKeyToken]),
		TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data[objects.LighthouseKeyCA]},
	}, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("connect to Lighthouse's broker at %s: %w", host, err)
	}
	return c, string(secret.Data[objects.LighthouseKeyNamespace]), nil
}
