package brokeradmin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// RemoveMemberResult counts what RemoveMember deleted.
type RemoveMemberResult struct {
	ClusterID string `json:"clusterID"`
	// Found reports whether the broker had any object of the member.
	Found bool `json:"found"`
	// Records and Slices are how many ExportRecords and EndpointSlices of the member were deleted.
	Records int `json:"exportRecords"`
	Slices  int `json:"endpointSlices"`
	// ServicesLeft counts services that other members still export, ServicesEnded those that only
	// this member exported.
	ServicesLeft  int `json:"servicesLeft"`
	ServicesEnded int `json:"servicesEnded"`
}

// RemoveMember removes a member from the clusterset, whether or not it still runs. Its access goes
// first, so that it cannot publish again; then its exports; then its registration, which frees its
// id and its blocks. Clusterset IPs of services that other members export stay. A tombstone stays
// too, from which the member's agent learns that it was removed. If it is interrupted, running it
// again completes it.
func RemoveMember(ctx context.Context, c client.Client, namespace, id string) (RemoveMemberResult, error) {
	result := RemoveMemberResult{ClusterID: id}
	if err := CheckClusterID(id); err != nil {
		return result, err
	}
	if _, err := findClusterSet(ctx, c, namespace); err != nil {
		return result, err
	}
	for _, part := range []func(context.Context, client.Client, string) error{
		result.revokeAccess, result.deleteExports, result.deleteRegistration,
	} {
		if err := part(ctx, c, namespace); err != nil {
			return result, fmt.Errorf("remove cluster %s (run it again to complete it): %w", id, err)
		}
	}
	return result, deleteTombstones(ctx, c, namespace, expired)
}

// revokeAccess takes effect at once: the token allows nothing but to read the tombstone, even while
// the API server still has it in its cache as valid.
func (r *RemoveMemberResult) revokeAccess(ctx context.Context, c client.Client, namespace string) error {
	narrowed, err := narrowRole(ctx, c, namespace, r.ClusterID)
	if err != nil {
		return err
	}
	marked, err := markLease(ctx, c, namespace, r.ClusterID, func(*coordinationv1.Lease) bool { return true })
	r.Found = r.Found || narrowed || marked
	if err != nil {
		return err
	}
	toDelete := []client.Object{sharedBinding(namespace, r.ClusterID)}
	// After the credential: without these bindings the member's grants would not be checked.
	return r.delete(ctx, c, append(toDelete, policies.MemberBindings(namespace, v1alpha1.ClusterID(r.ClusterID))...))
}

func (r *RemoveMemberResult) deleteRegistration(ctx context.Context, c client.Client, namespace string) error {
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.ClusterID}}
	return r.delete(ctx, c, []client.Object{cluster})
}

func (r *RemoveMemberResult) delete(ctx context.Context, c client.Client, toDelete []client.Object) error {
	steps, err := deleteAll(ctx, c, toDelete)
	r.Found = r.Found || len(steps) > 0
	return err
}

// deleteExports deletes the member's records and slices and removes it from the aggregates.
func (r *RemoveMemberResult) deleteExports(ctx context.Context, c client.Client, namespace string) (err error) {
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: r.ClusterID}
	services := serviceSet{}
	if r.Records, err = deleteMatching(ctx, c, &v1alpha1.ExportRecord{}, namespace, own, services); err != nil {
		return err
	}
	if r.Slices, err = deleteMatching(ctx, c, &discoveryv1.EndpointSlice{}, namespace, own, nil); err != nil {
		return err
	}
	r.Found = r.Found || r.Records+r.Slices > 0
	return r.updateAggregates(ctx, c, namespace, services)
}

// updateAggregates deletes aggregates that have no record any more and removes the member from the
// others. services are those of the records just deleted. Aggregates that list the member, or that
// it wrote last, are updated as well: an interrupted removal may have deleted its records before,
// and it may have written aggregates of services that it did not export.
func (r *RemoveMemberResult) updateAggregates(ctx context.Context, c client.Client, namespace string, services serviceSet) error {
	var imports mcsv1beta1.ServiceImportList
	if err := c.List(ctx, &imports, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the aggregates: %w", err)
	}
	for i := range imports.Items {
		si := &imports.Items[i]
		service, ok := objects.ServiceOf(si)
		exported := services[service] || objects.ListsCluster(si, r.ClusterID)
		if !ok || (!exported && si.Labels[v1alpha1.LabelWrittenBy] != r.ClusterID) {
			continue
		}
		r.Found = r.Found || exported
		records, err := recordsOf(ctx, c, namespace, service)
		if err != nil {
			return err
		}
		switch {
		case len(records) == 0:
			r.ServicesEnded++
			err = deleteAggregate(ctx, c, si)
		case exported:
			r.ServicesLeft++
			err = removeFromAggregate(ctx, c, si, r.ClusterID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recordsOf lists the records of a service, of all clusters.
func recordsOf(
	ctx context.Context, c client.Client, namespace string, service types.NamespacedName,
) ([]metav1.PartialObjectMetadata, error) {
	labels := client.MatchingLabels(objects.Labels(service, ""))
	return listMetadata(ctx, c, &v1alpha1.ExportRecord{}, client.InNamespace(namespace), labels)
}

// deleteAggregate deletes the aggregate that was read. If it has changed since, another member
// exports the service again and the aggregate stays.
func deleteAggregate(ctx context.Context, c client.Client, si *mcsv1beta1.ServiceImport) error {
	err := deleteWithRetry(ctx, c, si, client.Preconditions{UID: ptr.To(si.UID), ResourceVersion: ptr.To(si.ResourceVersion)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete aggregate %s: %w", si.Name, err)
	}
	return nil
}

// removeFromAggregate removes a cluster from the exporters that an aggregate lists.
func removeFromAggregate(ctx context.Context, c client.Client, si *mcsv1beta1.ServiceImport, id string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !objects.ListsCluster(si, id) {
			return nil
		}
		si.Status.Clusters = slices.DeleteFunc(si.Status.Clusters, func(s mcsv1beta1.ClusterStatus) bool { return s.Cluster == id })
		err := retryUntilPoliciesReady(ctx, func(ctx context.Context) error { return c.Status().Update(ctx, si) })
		if apierrors.IsConflict(err) {
			return errors.Join(err, c.Get(ctx, client.ObjectKeyFromObject(si), si))
		}
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove cluster %s from aggregate %s: %w", id, si.Name, err)
	}
	return nil
}
