package brokeradmin

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

// deleteObject deletes an object and reports whether it existed.
func deleteObject(ctx context.Context, c client.Client, obj client.Object) (existed bool, err error) {
	err = deleteWithRetry(ctx, c, obj)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", describe(c, obj), err)
	}
	return true, nil
}

// deleteAll deletes objects in the given order, up to the first that cannot be deleted. It returns
// a step for each object that existed.
func deleteAll(ctx context.Context, c client.Client, toDelete []client.Object) ([]Step, error) {
	var steps []Step
	for _, obj := range toDelete {
		step := Step{Object: describe(c, obj), Action: Deleted}
		existed, err := deleteObject(ctx, c, obj)
		if err != nil {
			return steps, err
		}
		if existed {
			steps = append(steps, step)
		}
	}
	return steps, nil
}

// deleteListed deletes listed objects one by one, because a member's role does not allow more. It
// returns how many of them are gone; an object that another client deleted counts.
func deleteListed(ctx context.Context, c client.Client, list []metav1.PartialObjectMetadata) (int, error) {
	for i := range list {
		if _, err := deleteObject(ctx, c, &list[i]); err != nil {
			return i, err
		}
	}
	return len(list), nil
}

// deleteEach lists the objects of a kind and deletes them with deleteListed. The services they
// belong to are added to services.
func deleteEach(ctx context.Context, c client.Client, kind client.Object, services serviceSet, o ...client.ListOption) (int, error) {
	list, err := listMetadata(ctx, c, kind, o...)
	if err != nil {
		return 0, err
	}
	services.add(list)
	return deleteListed(ctx, c, list)
}

// deleteMatching deletes all objects of a kind with the given labels and returns how many there
// were. The services they belong to are added to services. It lists again until there are none: a
// write of the member may have been under way when its access was revoked.
func deleteMatching(
	ctx context.Context, c client.Client, kind client.Object, namespace string, labels client.MatchingLabels, services serviceSet,
) (int, error) {
	count := 0
	for {
		list, err := listMetadata(ctx, c, kind, client.InNamespace(namespace), labels)
		if err != nil || len(list) == 0 {
			return count, err
		}
		services.add(list)
		if err := c.DeleteAllOf(ctx, kind, client.InNamespace(namespace), labels); err != nil {
			return count, fmt.Errorf("delete %T with %s: %w", kind, labels, err)
		}
		count += len(list)
	}
}

// serviceSet collects the services that deleted objects belonged to.
type serviceSet map[types.NamespacedName]bool

// add adds the services of the listed objects. A nil set stays empty.
func (s serviceSet) add(list []metav1.PartialObjectMetadata) {
	for i := range list {
		if service, ok := objects.ServiceOf(&list[i]); ok && s != nil {
			s[service] = true
		}
	}
}

// listMetadata lists the metadata of a kind. A kind that is not installed has no objects.
func listMetadata(
	ctx context.Context, c client.Client, kind client.Object, o ...client.ListOption,
) ([]metav1.PartialObjectMetadata, error) {
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

// deleteNamespace deletes a namespace that Seamark created, unless other objects are in it.
func deleteNamespace(ctx context.Context, c client.Client, name string) error {
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
