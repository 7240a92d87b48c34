package migrate

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

// brokerSecret is Submariner's Secret with the credential for its broker.
const brokerSecret = "submariner-broker-secret"

// BridgeOptions are what a bridge between Lighthouse's broker and Seamark's is installed with.
type BridgeOptions struct {
	// LighthouseClusters run Lighthouse only, SeamarkClusters Seamark only.
	LighthouseClusters, SeamarkClusters []string
	// TakeOver are the Seamark clusters in which Lighthouse's agent has ended.
	TakeOver []string
	// Image is that of the daemons.
	Image string
	// Secret is the name of Submariner's Secret with the credential for its broker, in its namespace;
	// brokerSecret when empty.
	Secret string
	// Broker is a client of Seamark's broker with an admin's rights, Invite how members reach it.
	Broker client.Client
	Invite brokeradmin.InviteOptions
}

// InstallBridge installs a bridge in the cluster of c, which runs Submariner. It can be run again:
// it continues where it was, and updates what differs.
func InstallBridge(ctx context.Context, c client.Client, o BridgeOptions) ([]brokeradmin.Step, error) {
	i := &installer{client: c}
	credential, err := lighthouseCredential(ctx, c, o.Secret)
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: objects.AgentNamespace}}
	if err := i.ensure(ctx, namespace, func() {}); err != nil {
		return i.steps, err
	}
	if err := i.ensureSecret(ctx, objects.BridgeLighthouseSecret, "", credential); err != nil {
		return i.steps, err
	}
	for _, id := range o.LighthouseClusters {
		if err := i.invite(ctx, o, id); err != nil {
			return i.steps, err
		}
	}
	for _, install := range []func(context.Context, BridgeOptions) error{i.account, i.roles, i.deployment} {
		if err := install(ctx, o); err != nil {
			return i.steps, err
		}
	}
	return i.steps, nil
}

// lighthouseCredential returns the content of the bridge's Secret for Lighthouse's broker, from the
// Submariner resource of a cluster.
func lighthouseCredential(ctx context.Context, c client.Client, name string) (map[string][]byte, error) {
	list, err := listKind(ctx, c, submarinerKind)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("this cluster has no Submariner resource, so the credential for Lighthouse's broker is not known: " +
			"install the bridge in a cluster that runs Submariner")
	}
	text := func(field string) string {
		v, _, _ := unstructured.NestedString(list[0].Object, "spec", field)
		return v
	}
	if name == "" {
		if name = text("brokerK8sSecret"); name == "" {
			name = brokerSecret
		}
	}
	out := map[string][]byte{
		objects.LighthouseKeyServer:    []byte(text("brokerK8sApiServer")),
		objects.LighthouseKeyNamespace: []byte(text("brokerK8sRemoteNamespace")),
		objects.LighthouseKeyToken:     []byte(text("brokerK8sApiServerToken")),
	}
	if ca, err := base64.StdEncoding.DecodeString(text("brokerK8sCA")); err == nil {
		out[objects.LighthouseKeyCA] = ca
	}
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: list[0].GetNamespace(), Name: name}
	if err := c.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("read Submariner's credential for its broker in Secret %s: %w "+
			"(name another one with --lighthouse-broker-secret)", key, err)
	}
	for k, v := range secret.Data {
		if len(v) > 0 {
			out[k] = v // newer than what the resource has
		}
	}
	return out, nil
}

// installer creates and updates objects, and remembers what it did.
type installer struct {
	client client.Client
	steps  []brokeradmin.Step
}

// ensure creates an object, or updates it if change makes a difference.
func (i *installer) ensure(ctx context.Context, obj client.Object, change func()) error {
	result, err := controllerutil.CreateOrUpdate(ctx, i.client, obj, func() error {
		if _, isNamespace := obj.(*corev1.Namespace); !isNamespace {
			labels := obj.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[objects.LabelPartOf], labels["app.kubernetes.io/component"] = objects.PartOfSeamark, "bridge"
			obj.SetLabels(labels)
		}
		change()
		return nil
	})
	name := obj.GetName()
	if gvk, errKind := apiutil.GVKForObject(obj, i.client.Scheme()); errKind == nil {
		name = gvk.Kind + " " + name
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	i.steps = append(i.steps, brokeradmin.Step{Object: name, Action: brokeradmin.Action(result)})
	return nil
}

func bridgeMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: name}
}

// ensureSecret writes a Secret. cluster is the Lighthouse cluster that it belongs to, if any.
// Without data it is only created.
func (i *installer) ensureSecret(ctx context.Context, name, cluster string, data map[string][]byte) error {
	secret := &corev1.Secret{ObjectMeta: bridgeMeta(name)}
	return i.ensure(ctx, secret, func() {
		if cluster != "" {
			secret.Labels[mcsv1beta1.LabelSourceCluster] = cluster
		}
		if data != nil {
			secret.Data = data
		}
	})
}

// invite makes a Lighthouse cluster a member of Seamark's clusterset, unless it is one already. The
// bridge keeps the membership in a second Secret, which it may not create itself.
func (i *installer) invite(ctx context.Context, o BridgeOptions, id string) error {
	if err := i.ensureSecret(ctx, objects.BridgeMembership(id), id, nil); err != nil {
		return err
	}
	existing := &corev1.Secret{}
	err := i.client.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.BridgeInvitation(id)}, existing)
	if err == nil && len(existing.Data) > 0 {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Secret %s: %w", objects.BridgeInvitation(id), err)
	}
	system := &corev1.Namespace{}
	if err := i.client.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	options := o.Invite
	options.For = "bridge-" + string(system.UID)
	invited, err := brokeradmin.Invite(ctx, o.Broker, id, options)
	if err != nil {
		return fmt.Errorf("invite the Lighthouse cluster %s: %w", id, err)
	}
	return i.ensureSecret(ctx, objects.BridgeInvitation(id), id, invited.Membership.Invitation().Data)
}

func (i *installer) account(ctx context.Context, _ BridgeOptions) error {
	return i.ensure(ctx, &corev1.ServiceAccount{ObjectMeta: bridgeMeta(objects.BridgeName)}, func() {})
}

// roles lets the bridge read its Secrets, keep memberships, and elect a leader. Its writes on the
// brokers need the credentials in the Secrets.
func (i *installer) roles(ctx context.Context, o BridgeOptions) error {
	read, keep := []string{objects.BridgeLighthouseSecret}, []string{}
	for _, id := range o.LighthouseClusters {
		read, keep = append(read, objects.BridgeInvitation(id)), append(keep, objects.BridgeMembership(id))
	}
	role := &rbacv1.Role{ObjectMeta: bridgeMeta(objects.BridgeName)}
	err := i.ensure(ctx, role, func() {
		role.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: read, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: keep, Verbs: []string{"get", "update"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{objects.BridgeName},
				Verbs: []string{"get", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		}
	})
	if err != nil {
		return err
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: objects.AgentNamespace, Name: objects.BridgeName}}
	binding := &rbacv1.RoleBinding{ObjectMeta: bridgeMeta(objects.BridgeName)}
	err = i.ensure(ctx, binding, func() {
		binding.RoleRef, binding.Subjects = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: objects.BridgeName}, subjects
	})
	if err != nil {
		return err
	}
	// The uid of kube-system identifies the bridge as the holder of leases.
	identity := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: objects.BridgeName}}
	err = i.ensure(ctx, identity, func() {
		identity.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}},
		}
	})
	if err != nil {
		return err
	}
	identityBinding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: objects.BridgeName}}
	return i.ensure(ctx, identityBinding, func() {
		identityBinding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: objects.BridgeName}
		identityBinding.Subjects = subjects
	})
}

func (i *installer) deployment(ctx context.Context, o BridgeOptions) error {
	d := &appsv1.Deployment{ObjectMeta: bridgeMeta(objects.BridgeName)}
	return i.ensure(ctx, d, func() {
		want := bridgeDeployment(o)
		d.Spec.Replicas, d.Spec.Selector = want.Replicas, want.Selector
		// The API server sets defaults in what exists. Of the pods only this can differ.
		if len(d.Spec.Template.Spec.Containers) != 1 {
			d.Spec.Template = want.Template
			return
		}
		have, wanted := &d.Spec.Template.Spec.Containers[0], &want.Template.Spec.Containers[0]
		if !equality.Semantic.DeepEqual(have.Args, wanted.Args) || have.Image != wanted.Image {
			d.Spec.Template = want.Template
		}
	})
}

func bridgeLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "seamark", "app.kubernetes.io/component": "bridge"}
}

func bridgeDeployment(o BridgeOptions) appsv1.DeploymentSpec {
	args := []string{
		"--leader-elect", "--lighthouse-clusters=" + strings.Join(slices.Sorted(slices.Values(o.LighthouseClusters)), ","),
		"--seamark-clusters=" + strings.Join(slices.Sorted(slices.Values(o.SeamarkClusters)), ","),
	}
	if len(o.TakeOver) > 0 {
		args = append(args, "--take-over="+strings.Join(slices.Sorted(slices.Values(o.TakeOver)), ","))
	}
	replicas, yes, no, user := int32(2), true, false, int64(65532)
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: probesPort}}, PeriodSeconds: 10}
	}
	return appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: bridgeLabels()},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: bridgeLabels()},
			Spec: corev1.PodSpec{
				ServiceAccountName: objects.BridgeName, NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
				SecurityContext: &corev1.PodSecurityContext{
					RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				Containers: []corev1.Container{{
					Name: "bridge", Image: o.Image, Command: []string{"/usr/local/bin/seamark-bridge"}, Args: args,
					Ports: []corev1.ContainerPort{
						{Name: "metrics", ContainerPort: 9441, Protocol: corev1.ProtocolTCP},
						{Name: "probes", ContainerPort: 9442, Protocol: corev1.ProtocolTCP},
					},
					LivenessProbe: probe("/healthz"), ReadinessProbe: probe("/readyz"), Resources: bridgeResources(),
					SecurityContext: &corev1.SecurityContext{
						AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
						Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					},
				}},
			},
		},
	}
}
