package exports

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

var errNotConnected = errors.New("the broker has not been reached since the agent started")

// readiness returns the Ready condition: whether the broker has what should be there. result is
// what writing to the broker returned. A service that should have a clusterset IP and has none
// cannot be reached, so it is not ready. Messages stay the same from one retry to the next, because
// each change is a write.
func readiness(export *mcsv1beta1.ServiceExport, plan Plan, result error) metav1.Condition {
	ready := mcsv1beta1.ServiceExportConditionReady
	notReady := func(reason mcsv1beta1.ServiceExportConditionReason, message string) metav1.Condition {
		return condition(ready, metav1.ConditionFalse, reason, message)
	}
	switch {
	case result == nil && !plan.heldUntil.IsZero():
		return notReady(v1alpha1.ServiceExportReasonWithdrawalHeld, heldMessage(plan))
	case plan.Valid.Status != metav1.ConditionTrue:
		return notReady(mcsv1beta1.ServiceExportReasonFailed, "not exported: "+plan.Valid.Message)
	case result == nil && plan.leftOut != nil:
		return notReady(plan.leftOut.Reason, leftOutMessage(plan.leftOut))
	case result == nil && plan.Shortage != nil:
		return notReady(v1alpha1.ServiceExportReasonNoClusterSetIPLeft, "published, but without a clusterset IP: "+plan.Shortage.Error())
	case result == nil && plan.Missing:
		return notReady(mcsv1beta1.ServiceExportReasonPending,
			"published; waiting for a clusterset IP, which the exporter with precedence allocates")
	case result == nil:
		return condition(ready, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported, "the service is published to the clusterset")
	case errors.Is(result, objects.ErrClusterIDTaken):
		return notReady(v1alpha1.ServiceExportReasonClusterIDTaken, "not exported: "+result.Error())
	case errors.Is(result, errNotConnected):
		// The broker may have the record from before the agent was restarted, so the last verdict holds.
		if old := meta.FindStatusCondition(export.Status.Conditions, string(ready)); old != nil && old.ObservedGeneration == export.Generation {
			return *old
		}
		return notReady(v1alpha1.ServiceExportReasonWaitingForBroker,
			"waiting for the broker: it has not been reached since the agent started; the export completes by itself")
	case objects.IsWriteConflict(result):
		return notReady(mcsv1beta1.ServiceExportReasonPending, "being published")
	case (apierrors.IsForbidden(result) || apierrors.IsInvalid(result)) && !objects.IsPolicyNotReady(result):
		return notReady(v1alpha1.ServiceExportReasonRefusedByBroker, "the broker refused it: "+result.Error())
	}
	return notReady(v1alpha1.ServiceExportReasonWaitingForBroker,
		fmt.Sprintf("waiting for the broker: %s; the export completes by itself", cause(result)))
}

// stalling are the reasons of Valid and Ready that only a user can remove. A missing Service is not
// among them: it may be applied after its export.
var stalling = []mcsv1beta1.ServiceExportConditionReason{
	v1alpha1.ServiceExportReasonNamespaceNotAllowed, v1alpha1.ServiceExportReasonLimitExceeded, mcsv1beta1.ServiceExportReasonInvalidServiceType,
	v1alpha1.ServiceExportReasonRefusedByBroker, v1alpha1.ServiceExportReasonClusterIDTaken, v1alpha1.ServiceExportReasonNoClusterSetIPLeft,
	mcsv1beta1.ServiceExportReasonTypeConflict, mcsv1beta1.ServiceExportReasonIPFamilyConflict,
}

// stalledBy returns the Stalled condition of an export whose Valid or Ready condition is False for
// a reason that only a user can remove.
func stalledBy(conditions ...metav1.Condition) (metav1.Condition, bool) {
	for _, c := range conditions {
		reason := mcsv1beta1.ServiceExportConditionReason(c.Reason)
		if c.Status == metav1.ConditionFalse && slices.Contains(stalling, reason) {
			return condition(v1alpha1.ServiceExportConditionStalled, metav1.ConditionTrue, reason, c.Message), true
		}
	}
	return metav1.Condition{}, false
}

// heldMessage says why a service without its Service is still published.
func heldMessage(plan Plan) string {
	return fmt.Sprintf("%s; what was published before stays until %s, because most exported Services are gone and no user was seen to delete them",
		plan.Valid.Message, plan.heldUntil.UTC().Format(time.RFC3339))
}

// leftOutMessage says why a valid export is not exported. The record is published nevertheless: all
// clusters see the conflict by it, and it takes over when the older export goes.
func leftOutMessage(c *merge.Conflict) string {
	differs, until := "another type", "the types agree"
	if c.Reason == mcsv1beta1.ServiceExportReasonIPFamilyConflict {
		differs, until = "other IP families", "it has one of them"
	}
	return fmt.Sprintf("not exported: cluster %s, whose export is older, has %s; the service is exported when %s", c.Winner, differs, until)
}

// cause describes a failure without addresses, ports or times, which objects.ErrorText may contain.
func cause(err error) string {
	kind, _ := objects.ErrorCause(err)
	switch {
	case kind == objects.CauseUnauthorized:
		return "it does not accept this cluster's credential any more (has the cluster been removed? then join again)"
	case utilnet.IsConnectionRefused(err):
		return "connection refused"
	case kind == objects.CauseTimeout:
		return "it does not answer"
	case objects.IsPolicyNotReady(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsInternalError(err), apierrors.IsServerTimeout(err):
		return "it is overloaded or starting"
	}
	return "it cannot be reached"
}

// validityOffline returns the Valid condition as far as it can be decided without the broker's
// settings.
func validityOffline(in Input) metav1.Condition {
	old := meta.FindStatusCondition(in.Export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	if old != nil && in.Service != nil && in.Service.Spec.Type != corev1.ServiceTypeExternalName {
		return *old
	}
	in.AllowedNamespaces = []string{in.Export.Namespace}
	return validity(in)
}
