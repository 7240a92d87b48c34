package objects

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// SetMembershipEnded sets Ready=False and Stalled=True on a ServiceExport of a cluster that left
// its clusterset or was removed from it: only joining again helps. It reports whether the
// conditions changed.
func SetMembershipEnded(export *mcsv1beta1.ServiceExport, message string) bool {
	stalled := meta.SetStatusCondition(&export.Status.Conditions,
		notMember(export, v1alpha1.ServiceExportConditionStalled, metav1.ConditionTrue, message))
	return setNotReady(export, message) || stalled
}

// SetNotMemberYet sets Ready=False on a ServiceExport of a cluster that waits for an invitation. It
// reports whether the conditions changed.
func SetNotMemberYet(export *mcsv1beta1.ServiceExport, message string) bool {
	removed := meta.RemoveStatusCondition(&export.Status.Conditions, string(v1alpha1.ServiceExportConditionStalled))
	return setNotReady(export, message) || removed
}

func setNotReady(export *mcsv1beta1.ServiceExport, message string) bool {
	return meta.SetStatusCondition(&export.Status.Conditions,
		notMember(export, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, message))
}

func notMember(
	export *mcsv1beta1.ServiceExport, t mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, message string,
) metav1.Condition {
	return metav1.Condition{
		Type: string(t), Status: status, ObservedGeneration: export.Generation,
		Reason: string(v1alpha1.ServiceExportReasonNotMember), Message: message,
	}
}
