package brokeradmin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// LeftMessage is the message of Ready=False on a ServiceExport after its cluster left.
const LeftMessage = "this cluster left the clusterset: run seamark join to export again"

// LeaveResult is what Leave did.
type LeaveResult struct {
	// Member is false when the cluster was no member.
	Member     bool   `json:"member"`
	ClusterID  string `json:"clusterID,omitempty"`
	ClusterSet string `json:"clusterSet,omitempty"`
	// Withdrawn reports that the broker holds none of this cluster's exports any more. Problem says
	// why not.
	Withdrawn bool   `json:"withdrawn"`
	Problem   string `json:"problem,omitempty"`
	// Records and Slices are how many ExportRecords and EndpointSlices were deleted on the broker.
	Records int `json:"exportRecords"`
	Slices  int `json:"endpointSlices"`
	// Imports and ImportedSlices are how many objects were deleted in this cluster, Exports how many
	// ServiceExports are no longer published.
	Imports        int `json:"serviceImportsDeleted"`
	ImportedSlices int `json:"importedSlicesDeleted"`
	Exports        int `json:"serviceExportsIdle"`
}

// Leave undoes Join. The invitation and the credential are deleted first, which stops the agent.
// Then the cluster's exports are withdrawn from the broker, if the broker can be reached, and the
// imports in this cluster are deleted. The identity objects that make the cluster a member and the
// policies that guard them are deleted last, so that running an interrupted Leave again completes
// it. The cluster id stays. CRDs and ServiceExports stay too, because they belong to the user.
func Leave(ctx context.Context, c client.Client) (LeaveResult, error) {
	var result LeaveResult
	local, err := ReadLocal(ctx, c)
	if err != nil {
		return result, err
	}
	result.Member = local.isMember()
	result.ClusterID, result.ClusterSet = local.ClusterID, local.ClusterSet
	if m := local.Membership; m != nil {
		result.ClusterID, result.ClusterSet = m.ClusterID, m.ClusterSet
	}
	leader, err := localLeader(ctx, c) // the agent releases its lease when the credential is gone
	if err != nil {
		return result, err
	}
	for _, secret := range []*corev1.Secret{local.Invitation, local.Secret} {
		if secret == nil {
			continue
		}
		if _, err := deleteObject(ctx, c, secret); err != nil {
			return result, err
		}
	}
	if result.Member {
		result.withdrawExports(ctx, local, leader)
	}
	if err := result.deleteLocalObjects(ctx, c); err != nil {
		return result, fmt.Errorf("leave clusterset %s (run it again to complete it): %w", result.ClusterSet, err)
	}
	return result, nil
}

// withdrawExports deletes this cluster's exports on the broker with the member's own credential.
func (l *LeaveResult) withdrawExports(ctx context.Context, local Local, leader string) {
	m := local.Membership
	if invited, err := objects.MembershipFrom(local.Invitation); m == nil && err == nil {
		m = &invited // the agent has not taken it up, or its Secret was deleted
	}
	if m == nil {
		l.Problem = "this cluster has no usable credential for the broker any more"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	config := m.Config()
	config.UserAgent = "seamark-leave/" + m.ClusterID
	c, err := NewClient(config)
	if err == nil {
		err = checkIsHolder(ctx, c, *m, local.KubeSystemUID, leader)
	}
	if errors.Is(err, objects.ErrClusterIDTaken) {
		l.Problem = fmt.Sprintf("the exports there are of another cluster, which uses the id %s too", m.ClusterID)
		return
	}
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
	services := serviceSet{}
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
	// The id can be used again at once, and no member takes the cluster for a silent one.
	_, err = markLease(ctx, c, m.Namespace, m.ClusterID, func(lease *coordinationv1.Lease) bool {
		return ptr.Deref(lease.Spec.HolderIdentity, holder) == holder
	})
	return err
}

// withdrawAggregate removes the member from the exporters that the aggregate lists, which no other
// member may do. It deletes the aggregate of a service that no cluster exports any more. Otherwise
// the remaining exporters keep the aggregate up to date.
func withdrawAggregate(ctx context.Context, c client.Client, m objects.Membership, service types.NamespacedName) error {
	si := &mcsv1beta1.ServiceImport{}
	err := c.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: objects.AggregateName(service)}, si)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := removeFromAggregate(ctx, c, si, m.ClusterID); err != nil {
		return err
	}
	records, err := recordsOf(ctx, c, m.Namespace, service)
	if err != nil || len(records) > 0 {
		return err
	}
	err = deleteAggregate(ctx, c, si)
	if apierrors.IsForbidden(err) {
		return nil // it still lists others that are leaving too; the last of them deletes it
	}
	return err
}

// deleteLocalObjects deletes what the agent and Join created in this cluster.
func (l *LeaveResult) deleteLocalObjects(ctx context.Context, c client.Client) error {
	var err error
	imports := managedOutsideBroker(objects.LabelManagedBy, objects.ManagedBySeamark)
	if l.Imports, err = deleteEach(ctx, c, &mcsv1beta1.ServiceImport{}, nil, imports); err != nil {
		return err
	}
	importedSlices := managedOutsideBroker(discoveryv1.LabelManagedBy, objects.ManagedBy)
	if l.ImportedSlices, err = deleteEach(ctx, c, &discoveryv1.EndpointSlice{}, nil, importedSlices); err != nil {
		return err
	}
	if err := deleteDerivedServices(ctx, c); err != nil {
		return err
	}
	if l.Exports, err = setExportsNotMember(ctx, c); err != nil {
		return err
	}
	memberPolicies, err := policies.Load(policies.Member)
	if err != nil {
		return err
	}
	slices.Reverse(memberPolicies) // bindings before their policies
	claims := objects.MembershipClaims("")
	for _, claim := range claims {
		if err := allowDeletion(ctx, c, claim); err != nil {
			return err
		}
	}
	toDelete := append(slices.Concat(claims, memberPolicies), objects.RangesProperty(nil), reachable.Property(nil))
	inAgentNamespace := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: name}
	}
	toDelete = append(toDelete, &coordinationv1.Lease{ObjectMeta: inAgentNamespace(objects.AgentLease)},
		&corev1.ConfigMap{ObjectMeta: inAgentNamespace(objects.LivenessConfigMap)})
	if _, err := deleteAll(ctx, c, toDelete); err != nil {
		return err
	}
	return RemoveAgentNamespace(ctx, c)
}

// allowDeletion marks an object that makes the cluster a member, so that admission lets it be
// deleted.
func allowDeletion(ctx context.Context, c client.Client, claim client.Object) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationLeaving+`":"true"}}}`))
	err := retryUntilPoliciesReady(ctx, func(ctx context.Context) error { return c.Patch(ctx, claim, patch) })
	if err != nil && !absent(err) {
		return fmt.Errorf("annotate %s: %w", describe(c, claim), err)
	}
	return nil
}

// deleteDerivedServices deletes the Services derived from imports. They have no owner that the
// garbage collector could follow.
func deleteDerivedServices(ctx context.Context, c client.Client) error {
	list, err := listMetadata(ctx, c, &corev1.Service{}, client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark})
	if err != nil {
		return err
	}
	_, err = deleteListed(ctx, c, slices.DeleteFunc(list, func(m metav1.PartialObjectMetadata) bool {
		service := m.Labels[mcsv1beta1.LabelServiceName]
		return service == "" || m.Name != objects.DerivedServiceName(service)
	}))
	return err
}

// managedOutsideBroker selects objects by a label, except those of a broker in the same cluster. A
// broker's objects have the label of the service's namespace, those of a member do not.
func managedOutsideBroker(label, value string) client.MatchingLabelsSelector {
	selector := labels.NewSelector()
	for _, r := range []struct {
		key    string
		op     selection.Operator
		values []string
	}{{label, selection.Equals, []string{value}}, {v1alpha1.LabelServiceNamespace, selection.DoesNotExist, nil}} {
		requirement, err := labels.NewRequirement(r.key, r.op, r.values)
		if err != nil {
			// Cannot happen, since the labels are constants. Select nothing rather than everything.
			return client.MatchingLabelsSelector{Selector: labels.Nothing()}
		}
		selector = selector.Add(*requirement)
	}
	return client.MatchingLabelsSelector{Selector: selector}
}

// setExportsNotMember sets Ready=False and Stalled=True with reason NotMember on every
// ServiceExport and returns how many there are.
func setExportsNotMember(ctx context.Context, c client.Client) (int, error) {
	var exports mcsv1beta1.ServiceExportList
	if err := c.List(ctx, &exports); err != nil && !absent(err) {
		return 0, fmt.Errorf("list the ServiceExports: %w", err)
	}
	var errs []error
	for i := range exports.Items {
		export := &exports.Items[i]
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // an agent that still runs writes it too
			if !objects.SetMembershipEnded(export, LeftMessage) {
				return nil
			}
			err := c.Status().Update(ctx, export)
			if apierrors.IsConflict(err) {
				return errors.Join(err, c.Get(ctx, client.ObjectKeyFromObject(export), export))
			}
			return err
		})
		if err != nil && !absent(err) {
			errs = append(errs, fmt.Errorf("update status of ServiceExport %s/%s: %w", export.Namespace, export.Name, err))
		}
	}
	return len(exports.Items), errors.Join(errs...)
}

// RemoveAgentNamespace deletes the agent's namespace if Join created it and nothing else is in it.
// Leave calls it too. Where the chart is installed, the namespace is empty only after the chart is
// uninstalled.
func RemoveAgentNamespace(ctx context.Context, c client.Client) error {
	return deleteNamespace(ctx, c, objects.AgentNamespace)
}
