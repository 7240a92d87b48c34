package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/install/policies"
	"github.com/seamark-dev/seamark/internal/objects"
)

// guardName is the name of the admission policy about ServiceImports and of its binding, and the
// beginning of that about the uninstall job.
const guardName = "seamark-beside-lighthouse"

// labelGuard on the policies is their Guard.
const labelGuard = "seamark.dev/guard"

// uninstallName is the label app of the pods that the operator creates to uninstall Lighthouse.
const uninstallName = AgentDeployment + "-uninstall"

func readGuard(ctx context.Context, c client.Client, f *Facts) error {
	f.Guard = GuardNone
	read := map[Guard]int{}
	all := guardObjects("", GuardAll)
	for _, obj := range all {
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("read the admission policy %s: %w", obj.GetName(), err)
		}
		read[Guard(obj.GetLabels()[labelGuard])]++
	}
	for guard, n := range read {
		if n == len(all) { // otherwise a command was killed while it changed them
			f.Guard = guard
		}
	}
	return nil
}

// guardDelay is how long API servers may take to apply a changed admission policy: each reads it by
// a watch, and compiles it once a second.
const guardDelay = 2 * time.Second

// setGuard installs or removes the policies. Lighthouse is ended or started when they are GuardAll.
// Their label says so only after guardDelay: if the command is killed before, it begins again.
func setGuard(ctx context.Context, c client.Client, f Facts, guard Guard) error {
	all := guardObjects(f.Submariner.Namespace, guard)
	if guard == GuardAll {
		for _, obj := range all {
			obj.GetLabels()[labelGuard] = string(guardPending)
		}
		if _, err := policies.Apply(ctx, c, all...); err != nil {
			return err
		}
		if err := pause(ctx, guardDelay); err != nil {
			return err
		}
		all = guardObjects(f.Submariner.Namespace, guard)
	}
	if guard != GuardNone {
		_, err := policies.Apply(ctx, c, all...)
		return err
	}
	for _, obj := range slices.Backward(all) { // a binding without its policy would be reported as an error
		if err := c.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the admission policy %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// guardObjects returns two policies and their bindings.
//
// The first keeps Lighthouse's agent from deleting ServiceImports. At each start it deletes those
// that its broker does not have, and its uninstall job deletes all. Updates are not refused: the
// agent would repeat them for ever, and makes five requests a second.
//
// The second keeps the uninstall job from running at all, as long as no ServiceImport may be
// deleted: it withdraws what this cluster contributes from Lighthouse's broker before it deletes
// the ServiceImport of a cluster, and clusters that have not finished read that broker. The
// operator gives up after two minutes.
func guardObjects(namespace string, guard Guard) []client.Object {
	deletions, pods := fmt.Sprintf("oldObject.metadata.?labels[?'%s'].orValue('') != '%s'", objects.LabelManagedBy, objects.ManagedBySeamark), "true"
	message := "Seamark manages this ServiceImport: Lighthouse's agent must not delete it"
	if guard == GuardAll {
		deletions, pods = "false", "false"
		message = "this cluster moves to Seamark, which takes over its ServiceImports: Lighthouse's agent must not delete them"
	}
	imports := guardPolicy(guardName, guard, admissionregistrationv1.Delete, mcsv1beta1.GroupName, "serviceimports")
	imports.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "lighthouse-agent", Expression: fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", namespace, AgentDeployment),
	}}
	imports.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: deletions, Message: message, Reason: ptr.To(metav1.StatusReasonForbidden),
	}}
	job := guardPolicy(guardName+"-uninstall", guard, admissionregistrationv1.Create, corev1.GroupName, "pods")
	job.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	job.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "uninstall-job", Expression: fmt.Sprintf("object.metadata.?labels[?'app'].orValue('') == '%s'", uninstallName),
	}}
	job.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: pods, Message: "this cluster moves to Seamark: Lighthouse's uninstall job must not withdraw what other clusters read",
		Reason: ptr.To(metav1.StatusReasonForbidden),
	}}
	return []client.Object{imports, guardBinding(imports), job, guardBinding(job)}
}

func guardPolicy(
	name string, guard Guard, operation admissionregistrationv1.OperationType, group, resource string,
) *admissionregistrationv1.ValidatingAdmissionPolicy {
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "seamark", labelGuard: string(guard)}},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
		},
	}
}

func guardBinding(policy *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name, Labels: maps.Clone(policy.Labels)},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}
