package brokeradmin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// LeftMessage is what a ServiceExport says of itself after its cluster left.
const LeftMessage = "this cluster left the clusterset: run seamark join to export again"

// Left is what Leave did.
type LeaveResult struct {
	// Member is false when there was nothing to leave.
	Member     bool   `json:"member"`
	ClusterID  string `json:"clusterID,omitempty"`
	ClusterSet string `json:"clusterSet,omitempty"`
	// Withdrawn tells that the broker holds nothing of this cluster's exports any more; Problem why not.
	Withdrawn bool   `json:"withdrawn"`
	Problem   string `json:"problem,omitempty"`
	// Records and Slices were withdrawn from the broker.
	Records int `json:"exportRecords"`
	Slices  int `json:"endpointSlices"`
	// Imports and ImportedSlices were deleted in this cluster, and so many ServiceExports told that they no longer work.
	Imports        int `json:"serviceImportsDeleted"`
	ImportedSlices int `json:"importedSlicesDeleted"`
	Exports        int `json:"serviceExportsIdle"`
}

// Leave undoes Join. The credential is taken away first, which stops the agent; then what the cluster contributed is withdrawn from
// the broker, as far as the broker can be reached, and the imports are deleted here. The objects that say the cluster is a
// member and the policies that guard them go last, so that an interrupted Leave is completed by doing it again; the cluster's id stays.
// CRDs and ServiceExports stay too: they are the user's.
func Leave(ctx context.Context, c client.Client) (LeaveResult, error) {
	var left LeaveResult
	local, err := ReadLocal(ctx, c)
	if err != nil {
		return left, err
	}
	left.Member = local.ClusterSet != "" || local.Secret != nil
	left.ClusterID, left.ClusterSet = local.ClusterID, local.ClusterSet
	if m := local.Membership; m != nil {
		left.ClusterID, left.ClusterSet = m.ClusterID, m.ClusterSet
	}
	if local.Secret != nil {
		if _, err := deleteObject(ctx, c, local.Secret); err != nil {
			return left, err
		}
	}
	if left.Member {
		left.withdrawExports(ctx, local)
	}
	if err := left.deleteLocalObjects(ctx, c); err != nil {
		return left, fmt.Errorf("leave clusterset %s (run it again to complete it): %w", left.ClusterSet, err)
	}
	return left, nil
}

// withdraw takes this cluster's contribution off the broker with the member's own credential.
func (l *LeaveResult) withdrawExports(ctx context.Context, local Local) {
	m := local.Membership
	if m == nil {
		l.Problem = "there is no usable credential for the broker here any more"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	config := m.Config()
	config.UserAgent = "seamark-leave/" + m.ClusterID
	c, err := NewClient(config)
	if err == nil {
		err = l.deleteExports(ctx, c, *m, local.KubeSystemUID)
	}
	if err != nil {
		what, _ := brokerProblem(*m, err)
		l.Problem = fmt.Sprintf("%s (%v)", what, err)
		return
	}
	l.Withdrawn = true
}

func (l *LeaveResult) deleteExports(ctx context.Context, c client.Client, m objects.Membership, holder string) error {
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: m.ClusterID}
	services := map[types.NamespacedName]bool{}
	var err error
	if l.Records, err = deleteEach(ctx, c, &v1alpha1.ExportRecord{}, services, client.InNamespace(m.Namespace), own); err != nil {
		return err
	}
	if l.Slices, err = deleteEach(ctx, c, &discoveryv1.EndpointSlice{}, nil, client.InNamespace(m.Namespace), own); err != nil {
		return err
	}
	for service := range services {
		if err := withdrawAggregate(ctx, c, m, service); err != nil {
			return err
		}
	}
	return releaseLease(ctx, c, m, holder)
}

// withdrawAggregate takes the member off the aggregate's list, which nobody else may, and deletes the aggregate of a service
// that nobody exports any more. Of one that others export they take care.
func withdrawAggregate(ctx context.Context, c client.Client, m objects.Membership, service types.NamespacedName) error {
	si := &mcsv1beta1.ServiceImport{}
	err := c.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: objects.AggregateName(service)}, si)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := removeFromAggregate(ctx, c, si, m.ClusterID); err != nil {
		return err
	}
	records, err := listMetadata(ctx, c, &v1alpha1.ExportRecord{}, client.InNamespace(m.Namespace), client.MatchingLabels(objects.Labels(service, "")))
	if err != nil || len(records) > 0 {
		return err
	}
	err = deleteAggregate(ctx, c, si)
	if apierrors.IsForbidden(err) {
		return nil // it still names others, who have not taken themselves out yet: the last of them deletes it
	}
	return err
}

// releaseLease lets others know at once that nobody has this id.
func releaseLease(ctx context.Context, c client.Client, m objects.Membership, holder string) error {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.ClusterID}, lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != holder {
		return nil
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = nil, nil
	return c.Update(ctx, lease)
}

// deleteEach deletes one by one, which is all a member may do, and counts.
func deleteEach(ctx context.Context, c client.Client, kind client.Object, services map[types.NamespacedName]bool, o ...client.ListOption) (int, error) {
	list, err := listMetadata(ctx, c, kind, o...)
	if err != nil {
		return 0, err
	}
	for i := range list {
		if service, ok := objects.ServiceOf(&list[i]); ok && services != nil {
			services[service] = true
		}
		if err := deleteWithRetry(ctx, c, &list[i]); err != nil && !absent(err) {
			return i, fmt.Errorf("delete %s: %w", describe(c, &list[i]), err)
		}
	}
	return len(list), nil
}

// cleanUp removes from this cluster what the agent and Join made.
func (l *LeaveResult) deleteLocalObjects(ctx context.Context, c client.Client) error {
	var err error
	if l.Imports, err = deleteEach(ctx, c, &mcsv1beta1.ServiceImport{}, nil, notBrokers(objects.LabelManagedBy, objects.ManagedBySeamark)); err != nil {
		return err
	}
	if l.ImportedSlices, err = deleteEach(ctx, c, &discoveryv1.EndpointSlice{}, nil, notBrokers(discoveryv1.LabelManagedBy, objects.ManagedBy)); err != nil {
		return err
	}
	if err := deleteDerivedServices(ctx, c); err != nil {
		return err
	}
	if l.Exports, err = setExportsNotMember(ctx, c); err != nil {
		return err
	}
	guards, err := policies.Load(policies.Member)
	if err != nil {
		return err
	}
	slices.Reverse(guards) // bindings before what they bind
	doomed := append(objects.MembershipClaims(""), guards...)
	doomed = append(doomed, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: objects.AgentLease}})
	for _, obj := range doomed {
		if _, err := deleteObject(ctx, c, obj); err != nil {
			return err
		}
	}
	return RemoveAgentNamespace(ctx, c)
}

// deleteDerived deletes the Services that made imports reachable. The garbage collector would too, but this way they are gone when
// Leave returns.
func deleteDerivedServices(ctx context.Context, c client.Client) error {
	list, err := listMetadata(ctx, c, &corev1.Service{}, client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark})
	if err != nil {
		return err
	}
	for i := range list {
		if service := list[i].Labels[mcsv1beta1.LabelServiceName]; service == "" || list[i].Name != objects.DerivedServiceName(service) {
			continue
		}
		if err := deleteWithRetry(ctx, c, &list[i]); err != nil && !absent(err) {
			return fmt.Errorf("delete %s: %w", describe(c, &list[i]), err)
		}
	}
	return nil
}

// notBrokers selects objects by a label, but not those of a broker in this same cluster, which name the service's namespace in
// another label and are not ours here.
func notBrokers(label, value string) client.MatchingLabelsSelector {
	is := labels.NewSelector()
	for _, r := range []struct {
		key    string
		op     selection.Operator
		values []string
	}{{label, selection.Equals, []string{value}}, {v1alpha1.LabelServiceNamespace, selection.DoesNotExist, nil}} {
		requirement, err := labels.NewRequirement(r.key, r.op, r.values)
		if err != nil {
			return client.MatchingLabelsSelector{Selector: labels.Nothing()} // the labels are constants; delete nothing rather than all
		}
		is = is.Add(*requirement)
	}
	return client.MatchingLabelsSelector{Selector: is}
}

// idleExports tells every ServiceExport that it is published no longer.
func setExportsNotMember(ctx context.Context, c client.Client) (int, error) {
	var exports mcsv1beta1.ServiceExportList
	if err := c.List(ctx, &exports); err != nil && !absent(err) {
		return 0, fmt.Errorf("list the ServiceExports: %w", err)
	}
	var errs []error
	for i := range exports.Items {
		export := &exports.Items[i]
		if !meta.SetStatusCondition(&export.Status.Conditions, metav1.Condition{
			Type: string(mcsv1beta1.ServiceExportConditionReady), Status: metav1.ConditionFalse, ObservedGeneration: export.Generation,
			Reason: string(v1alpha1.ServiceExportReasonNotMember), Message: LeftMessage,
		}) {
			continue
		}
		if err := c.Status().Update(ctx, export); err != nil && !absent(err) {
			errs = append(errs, fmt.Errorf("ServiceExport %s/%s: %w", export.Namespace, export.Name, err))
		}
	}
	return len(exports.Items), errors.Join(errs...)
}

// RemoveAgentNamespace deletes the agent's namespace if Join made it and nothing of anybody's is in it. Leave does so too, but where the
// chart is installed the namespace is empty only after that.
func RemoveAgentNamespace(ctx context.Context, c client.Client) error {
	return removeNamespace(ctx, c, objects.AgentNamespace)
}

// removeNamespace deletes a namespace if we made it and nothing of anybody's is in it.
func removeNamespace(ctx context.Context, c client.Client, name string) error {
	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	if namespace.Labels[objects.LabelManagedBy] != objects.ManagedBySeamark || namespace.DeletionTimestamp != nil {
		return nil
	}
	for _, kind := range []client.Object{
		&corev1.Pod{}, &corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.ServiceAccount{}, &corev1.PersistentVolumeClaim{},
		&appsv1.Deployment{}, &appsv1.DaemonSet{}, &appsv1.StatefulSet{}, &batchv1.Job{}, &batchv1.CronJob{},
	} {
		list, err := listMetadata(ctx, c, kind, client.InNamespace(name))
		if err != nil {
			return err
		}
		for i := range list {
			if name := list[i].Name; name != "kube-root-ca.crt" && name != "default" { // every namespace has these
				return nil
			}
		}
	}
	_, err := deleteObject(ctx, c, namespace)
	return err
}
