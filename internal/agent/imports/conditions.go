package imports

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
)

// optionalConditions are present only while they are True.
var optionalConditions = []mcsv1beta1.ServiceImportConditionType{
	v1alpha1.ServiceImportConditionStaleEndpointsKept, v1alpha1.ServiceImportConditionAddressesRefused,
	v1alpha1.ServiceImportConditionWithdrawalHeld, v1alpha1.ServiceImportConditionStalled,
}

// maxRefusedLength bounds how many refused addresses a condition or an event names.
const maxRefusedLength = 900

// conditions returns what the ServiceImport's status should say, Ready first.
func conditions(in Input, plan Plan, si *mcsv1beta1.ServiceImport) []metav1.Condition {
	ready := ready(in, plan, si)
	out := []metav1.Condition{ready}
	if reason := mcsv1beta1.ServiceImportConditionReason(ready.Reason); ready.Status == metav1.ConditionFalse && in.needsUser(reason) {
		out = append(out, condition(v1alpha1.ServiceImportConditionStalled, metav1.ConditionTrue, reason, ready.Message))
	}
	if plan.kept.any() {
		out = append(out, condition(v1alpha1.ServiceImportConditionStaleEndpointsKept, metav1.ConditionTrue,
			v1alpha1.ServiceImportReasonNoOtherCluster, plan.kept.String()))
	}
	if len(plan.Refused) > 0 {
		out = append(out, condition(v1alpha1.ServiceImportConditionAddressesRefused, metav1.ConditionTrue,
			v1alpha1.ServiceImportReasonAddressNotAllowed, fmt.Sprintf("not imported: %.*s", maxRefusedLength, strings.Join(plan.Refused, "; "))))
	}
	if held := heldCondition(in.Held, in.Records); held != nil {
		out = append(out, *held)
	}
	return out
}

func ready(in Input, plan Plan, si *mcsv1beta1.ServiceImport) metav1.Condition {
	t := mcsv1beta1.ServiceImportConditionReady
	switch {
	case len(plan.families) == 0:
		return condition(t, metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonIPFamilyNotSupported, fmt.Sprintf(
			"the service has only %s, this cluster only %s", familyNames(plan.merged.Spec.IPFamilies), familyNames(in.Families)))
	case plan.merged.Mode == merge.ModeClusterSetIP && len(si.Spec.IPs) == 0:
		reason, message := in.whyNoAddress()
		return condition(t, metav1.ConditionFalse, reason, message)
	}
	return condition(t, metav1.ConditionTrue, mcsv1beta1.ServiceImportReasonReady, "the service is imported")
}

// needsUser reports whether only a user can remove a reason of Ready=False. The API server may have
// failed to write a derived Service for a moment only; a quota or a policy does not go away.
func (in Input) needsUser(reason mcsv1beta1.ServiceImportConditionReason) bool {
	switch reason {
	case mcsv1beta1.ServiceImportReasonPending:
		return false
	case v1alpha1.ServiceImportReasonDerivedServiceRefused:
		return apierrors.IsForbidden(in.DerivedError) || apierrors.IsInvalid(in.DerivedError) || apierrors.IsBadRequest(in.DerivedError)
	}
	return true
}

// mergeConditions brings the conditions of a status up to date with those that are wanted.
func mergeConditions(status *[]metav1.Condition, wanted []metav1.Condition, generation int64) {
	for _, c := range wanted {
		c.ObservedGeneration = generation
		meta.SetStatusCondition(status, c)
	}
	for _, t := range optionalConditions {
		if meta.FindStatusCondition(wanted, string(t)) == nil {
			meta.RemoveStatusCondition(status, string(t))
		}
	}
}

// newlyRefused returns the message about refused addresses if it changed, for an event. The status
// is compared, so that a restarted agent does not repeat an event.
func newlyRefused(before, after []metav1.Condition) string {
	now := meta.FindStatusCondition(after, string(v1alpha1.ServiceImportConditionAddressesRefused))
	old := meta.FindStatusCondition(before, string(v1alpha1.ServiceImportConditionAddressesRefused))
	if now == nil || (old != nil && old.Message == now.Message) {
		return ""
	}
	return now.Message
}

func condition(
	t mcsv1beta1.ServiceImportConditionType, status metav1.ConditionStatus, reason mcsv1beta1.ServiceImportConditionReason, message string,
) metav1.Condition {
	return metav1.Condition{Type: string(t), Status: status, Reason: string(reason), Message: message}
}

func familyNames(families []corev1.IPFamily) string {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = string(f)
	}
	return enumerate(names)
}

// enumerate lists names as a sentence does: "a, b and c".
func enumerate(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
