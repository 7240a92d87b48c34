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

// Removed counts what Remove took away.
type RemoveMemberResult struct {
	ClusterID string `json:"clusterID"`
	// Found tells whether there was anything of the member.
	Found bool `json:"found"`
	// Records and Slices were the member's contribution.
	Records int `json:"exportRecords"`
	Slices  int `json:"endpointSlices"`
	// Left are services that go on without the member, Ended those that nobody else exported.
	ServicesLeft  int `json:"servicesLeft"`
	ServicesEnded int `json:"servicesEnded"`
}

// Remove takes a member out of the clusterset, whether or not it still runs: first its rights, so that it cannot put anything
// back, then what it contributed, then its registration, which frees its id and its blocks. Clusterset IPs of services that
// live on stay. An interrupted removal is completed by doing it again.
func RemoveMember(ctx context.Context, c client.Client, namespace, id string) (RemoveMemberResult, error) {
	removed := RemoveMemberResult{ClusterID: id}
	if err := CheckClusterID(id); err != nil {
		return removed, err
	}
	if _, err := findClusterSet(ctx, c, namespace); err != nil {
		return removed, err
	}
	for _, part := range []func(context.Context, client.Client, string) error{removed.revoke, removed.contribution, removed.registration} {
		if err := part(ctx, c, namespace); err != nil {
			return removed, fmt.Errorf("remove cluster %s (run it again to complete it): %w", id, err)
		}
	}
	return removed, nil
}

// revoke works at once: without bindings the token is good for nothing, even while the API server still remembers it as valid.
func (r *RemoveMemberResult) revoke(ctx context.Context, c client.Client, namespace string) error {
	var doomed []client.Object
	for _, binding := range memberBindings(namespace, r.ClusterID) {
		doomed = append(doomed, binding)
	}
	doomed = append(doomed, memberAccount(namespace, r.ClusterID), ownRole(namespace, r.ClusterID))
	// After the credential: without these bindings the member's grants would not be checked.
	return r.deleteAll(ctx, c, append(doomed, policies.MemberBindings(namespace, v1alpha1.ClusterID(r.ClusterID))...))
}

func (r *RemoveMemberResult) registration(ctx context.Context, c client.Client, namespace string) error {
	key := metav1.ObjectMeta{Namespace: namespace, Name: r.ClusterID}
	return r.deleteAll(ctx, c, []client.Object{&coordinationv1.Lease{ObjectMeta: key}, &v1alpha1.Cluster{ObjectMeta: key}})
}

func (r *RemoveMemberResult) deleteAll(ctx context.Context, c client.Client, doomed []client.Object) error {
	for _, obj := range doomed {
		steps, err := deleteObject(ctx, c, obj)
		if err != nil {
			return err
		}
		r.Found = r.Found || len(steps) > 0
	}
	return nil
}

// contribution deletes the member's records and slices and takes it out of the aggregates.
func (r *RemoveMemberResult) contribution(ctx context.Context, c client.Client, namespace string) error {
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: r.ClusterID}
	services := map[types.NamespacedName]bool{}
	records, err := deleteMatching(ctx, c, &v1alpha1.ExportRecord{}, namespace, own, services)
	if err != nil {
		return err
	}
	slicesGone, err := deleteMatching(ctx, c, &discoveryv1.EndpointSlice{}, namespace, own, nil)
	if err != nil {
		return err
	}
	r.Records, r.Slices = records, slicesGone
	r.Found = r.Found || records+slicesGone > 0
	return r.aggregates(ctx, c, namespace, services)
}

// deleteMatching deletes all objects of a kind with the labels and counts them; the services they belong to are noted. It looks
// again until there are none: a write may have been under way when the rights were taken.
func deleteMatching(ctx context.Context, c client.Client, kind client.Object, namespace string, labels client.MatchingLabels, services map[types.NamespacedName]bool) (int, error) {
	count := 0
	for {
		list, err := listMetadata(ctx, c, kind, client.InNamespace(namespace), labels)
		if err != nil || len(list) == 0 {
			return count, err
		}
		for i := range list {
			if service, ok := objects.ServiceOf(&list[i]); ok && services != nil {
				services[service] = true
			}
		}
		if err := c.DeleteAllOf(ctx, kind, client.InNamespace(namespace), labels); err != nil {
			return count, fmt.Errorf("delete %T with %s: %w", kind, labels, err)
		}
		count += len(list)
	}
}

// listMetadata lists the metadata of a kind; a kind that is not installed has no objects.
func listMetadata(ctx context.Context, c client.Client, kind client.Object, o ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	gvk, err := c.GroupVersionKindFor(kind)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	if err := c.List(ctx, list, o...); err != nil && !absent(err) {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	return list.Items, nil
}

// aggregates deletes those that no record stands behind any more and takes the member out of the others. services are those of
// the records just deleted; aggregates that name the member are seen to as well, whatever became of its records before.
func (r *RemoveMemberResult) aggregates(ctx context.Context, c client.Client, namespace string, services map[types.NamespacedName]bool) error {
	var imports mcsv1beta1.ServiceImportList
	if err := c.List(ctx, &imports, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the aggregates: %w", err)
	}
	for i := range imports.Items {
		si := &imports.Items[i]
		service, ok := objects.ServiceOf(si)
		if !ok || (!services[service] && !listsCluster(si, r.ClusterID)) {
			continue
		}
		r.Found = true
		left, err := listMetadata(ctx, c, &v1alpha1.ExportRecord{}, client.InNamespace(namespace), client.MatchingLabels(objects.Labels(service, "")))
		if err != nil {
			return err
		}
		if len(left) == 0 {
			r.ServicesEnded++
			err = deleteAggregate(ctx, c, si)
		} else {
			r.ServicesLeft++
			err = removeFromAggregate(ctx, c, si, r.ClusterID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endAggregate deletes the aggregate that was read. If it changed meanwhile somebody exports the service again, and keeps it.
func deleteAggregate(ctx context.Context, c client.Client, si *mcsv1beta1.ServiceImport) error {
	err := deleteWithRetry(ctx, c, si, client.Preconditions{UID: ptr.To(si.UID), ResourceVersion: ptr.To(si.ResourceVersion)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete aggregate %s: %w", si.Name, err)
	}
	return nil
}

func removeFromAggregate(ctx context.Context, c client.Client, si *mcsv1beta1.ServiceImport, id string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !listsCluster(si, id) {
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
		return fmt.Errorf("take cluster %s out of aggregate %s: %w", id, si.Name, err)
	}
	return nil
}

func listsCluster(si *mcsv1beta1.ServiceImport, id string) bool {
	return slices.ContainsFunc(si.Status.Clusters, func(s mcsv1beta1.ClusterStatus) bool { return s.Cluster == id })
}
