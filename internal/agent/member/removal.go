package member

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// RemovedError means that this cluster is no member any more: its Lease on the broker says so. A
// refused credential alone is no such proof, because credentials also expire.
type RemovedError struct{ ClusterID, ClusterSet, At string }

// Error implements error.
func (e *RemovedError) Error() string {
	return fmt.Sprintf("cluster %s was removed from clusterset %s at %s: to export and import again, "+
		"get a new invitation (seamark broker invite %s) and run seamark join", e.ClusterID, e.ClusterSet, e.At, e.ClusterID)
}

// removal returns an error if a Lease, or a membership Secret, says that the cluster was removed.
func removal(obj metav1.Object, clusterID, clusterSet string) error {
	if at := objects.RemovedAt(obj); at != "" {
		return &RemovedError{clusterID, clusterSet, at}
	}
	return nil
}

func isRemoved(err error) bool {
	var removed *RemovedError
	return errors.As(err, &removed)
}

// CheckSecret returns a RemovedError if an earlier agent found that this cluster was removed.
func CheckSecret(secret *corev1.Secret, m objects.Membership) error {
	return removal(secret, m.ClusterID, m.ClusterSet)
}

// Withdraw deletes what this cluster has as a member, after it was removed: imports, the claim to
// be a member and the claims of its exports to be published. The Secret is marked first: an agent
// that starts later must not restore them, even if its credential has expired meanwhile. The
// cluster id and the ServiceExports stay. Withdraw writes nothing when it is called again.
func Withdraw(ctx context.Context, c client.Client, removed *RemovedError) error {
	if err := markSecret(ctx, c, removed.At); err != nil {
		return err
	}
	return errors.Join(setExportsNotMember(ctx, c, removed), deleteImports(ctx, c), deleteClaims(ctx, c))
}

func markSecret(ctx context.Context, c client.Client, at string) error {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}, secret); err != nil {
		return fmt.Errorf("read secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	if objects.RemovedAt(secret) == at {
		return nil
	}
	if acceptedAgain(ctx, secret) {
		return ErrAcceptedAgain
	}
	objects.MarkRemoved(secret, at)
	if err := c.Update(ctx, secret); err != nil {
		return fmt.Errorf("mark secret %s/%s: %w", objects.AgentNamespace, objects.MembershipSecret, err)
	}
	return nil
}

// ErrAcceptedAgain means that the cluster joined again before it had withdrawn anything.
var ErrAcceptedAgain = errors.New("the broker has this cluster as a member again")

// acceptedAgain reports whether the Lease on the broker, read with the credential that is stored
// now, is that of a member.
func acceptedAgain(ctx context.Context, secret *corev1.Secret) bool {
	m, err := objects.MembershipFrom(secret)
	if err != nil {
		return false
	}
	cfg := m.Config()
	cfg.Timeout = writeTimeout
	c, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return false
	}
	lease, err := c.Leases(m.Namespace).Get(ctx, m.ClusterID, metav1.GetOptions{})
	return err == nil && objects.RemovedAt(lease) == ""
}

func setExportsNotMember(ctx context.Context, c client.Client, removed *RemovedError) error {
	return updateExports(ctx, c, func(export *mcsv1beta1.ServiceExport) bool {
		changed := meta.RemoveStatusCondition(&export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		return objects.SetMembershipEnded(export, "not exported: "+removed.Error()) || changed
	})
}

// SetExportsNotMember sets Ready=False on the ServiceExports of a cluster that is no member, or not
// yet. An export that says so already, for whatever reason, stays as it is.
func SetExportsNotMember(ctx context.Context, c client.Client, reason *NotMemberError) error {
	return updateExports(ctx, c, func(export *mcsv1beta1.ServiceExport) bool {
		ready := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		if ready != nil && ready.Reason == string(v1alpha1.ServiceExportReasonNotMember) {
			return false
		}
		return objects.SetNotMemberYet(export, "not exported: "+reason.Error())
	})
}

// updateExports updates the status of every ServiceExport whose conditions change.
func updateExports(ctx context.Context, c client.Client, change func(*mcsv1beta1.ServiceExport) bool) error {
	var exports mcsv1beta1.ServiceExportList
	if err := c.List(ctx, &exports); err != nil {
		return fmt.Errorf("list the ServiceExports: %w", err)
	}
	var errs []error
	for i := range exports.Items {
		export := &exports.Items[i]
		if !change(export) {
			continue
		}
		if err := c.Status().Update(ctx, export); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("update status of ServiceExport %s/%s: %w", export.Namespace, export.Name, err))
		}
	}
	return errors.Join(errs...)
}

// deleteImports deletes the derived Services and slices too. The garbage collector would only do so
// later, and not those whose ServiceImport is gone already.
func deleteImports(ctx context.Context, c client.Client) error {
	var imports mcsv1beta1.ServiceImportList
	var imported discoveryv1.EndpointSliceList
	var services corev1.ServiceList
	managed := client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark}
	err := errors.Join(c.List(ctx, &imports, managed), c.List(ctx, &services, managed),
		c.List(ctx, &imported, client.MatchingLabels{discoveryv1.LabelManagedBy: objects.ManagedBy}))
	if err != nil {
		return fmt.Errorf("list what was imported: %w", err)
	}
	var toDelete []client.Object
	for i := range imports.Items {
		if si := &imports.Items[i]; objects.IsManagedImport(si) {
			toDelete = append(toDelete, si)
		}
	}
	for i := range imported.Items {
		if _, ok := objects.ImportedService(&imported.Items[i]); ok {
			toDelete = append(toDelete, &imported.Items[i])
		}
	}
	for i := range services.Items {
		if _, ok := objects.DerivedFrom(&services.Items[i]); ok {
			toDelete = append(toDelete, &services.Items[i])
		}
	}
	var errs []error
	for _, obj := range toDelete {
		if obj.GetDeletionTimestamp() == nil {
			errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, obj)))
		}
	}
	return errors.Join(errs...)
}

// deleteClaims deletes the objects that exist exactly while the cluster is a member, and what its
// agent published for the data plane. Admission lets the claims be deleted only when they are
// marked for it.
func deleteClaims(ctx context.Context, c client.Client) error {
	var errs []error
	for _, claim := range objects.MembershipClaims("") {
		err := c.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		if err == nil && claim.GetAnnotations()[v1alpha1.AnnotationLeaving] == "" {
			annotations := map[string]string{v1alpha1.AnnotationLeaving: "true"}
			for key, value := range claim.GetAnnotations() {
				annotations[key] = value
			}
			claim.SetAnnotations(annotations)
			err = c.Update(ctx, claim)
		}
		if err == nil {
			err = c.Delete(ctx, claim)
		}
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", claim.GetName(), err))
		}
	}
	for _, property := range []client.Object{objects.RangesProperty(nil), reachable.Property(nil)} {
		if err := c.Delete(ctx, property); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", property.GetName(), err))
		}
	}
	return errors.Join(errs...)
}
