package exports

import (
	"context"
	"errors"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

var errNotConnected = errors.New("the broker has not been reached since the agent started")

// readiness says whether the broker has what should be there; outcome is what writing it brought. A message names the cause in
// words that stay the same from one retry to the next, or every retry would be a write.
//
// starved is why the service has no clusterset IP although it should: what is published is then of little use, so that counts too.
func readiness(export *mcsv1beta1.ServiceExport, plan Plan, outcome, starved error) metav1.Condition {
	ready := mcsv1beta1.ServiceExportConditionReady
	switch {
	case plan.Valid.Status != metav1.ConditionTrue:
		return condition(ready, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonFailed, "not exported: "+plan.Valid.Message)
	case outcome == nil && starved != nil:
		return condition(ready, metav1.ConditionFalse, v1alpha1.ServiceExportReasonNoClusterSetIPLeft, "published, but without a clusterset IP: "+starved.Error())
	case outcome == nil:
		return condition(ready, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported, "the service is published to the clusterset")
	case errors.Is(outcome, objects.ErrClusterIDTaken):
		return condition(ready, metav1.ConditionFalse, v1alpha1.ServiceExportReasonClusterIDTaken, "not exported: "+outcome.Error())
	case errors.Is(outcome, errNotConnected):
		// The broker may well have it from before the agent was restarted: what it said then still holds.
		if old := meta.FindStatusCondition(export.Status.Conditions, string(ready)); old != nil && old.ObservedGeneration == export.Generation {
			return *old
		}
		return condition(ready, metav1.ConditionFalse, v1alpha1.ServiceExportReasonWaitingForBroker,
			"waiting for the broker: it has not been reached since the agent started; the export completes by itself")
	case apierrors.IsConflict(outcome) || apierrors.IsAlreadyExists(outcome):
		return condition(ready, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonPending, "being published")
	case (apierrors.IsForbidden(outcome) || apierrors.IsInvalid(outcome)) && !objects.IsPolicyNotReady(outcome):
		return condition(ready, metav1.ConditionFalse, v1alpha1.ServiceExportReasonRefusedByBroker, "the broker refused it: "+outcome.Error())
	}
	return condition(ready, metav1.ConditionFalse, v1alpha1.ServiceExportReasonWaitingForBroker,
		fmt.Sprintf("waiting for the broker: %s; the export completes by itself", cause(outcome)))
}

// cause puts a failure into words without addresses, ports or times.
func cause(err error) string {
	var netErr net.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return "it does not accept this cluster's credential any more (has the cluster been removed? then join again)"
	case utilnet.IsConnectionRefused(err):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "it does not answer"
	case objects.IsPolicyNotReady(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err), apierrors.IsServerTimeout(err):
		return "it is overloaded or starting"
	}
	return "it cannot be reached"
}

// validityOffline judges an export as far as it can be judged without the broker's settings.
func validityOffline(in Input) metav1.Condition {
	if old := meta.FindStatusCondition(in.Export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid)); old != nil && in.Service != nil && in.Service.Spec.Type != corev1.ServiceTypeExternalName {
		return *old
	}
	in.AllowedNamespaces = []string{in.Export.Namespace}
	return validity(in)
}
