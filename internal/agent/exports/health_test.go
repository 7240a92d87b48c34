package exports

import (
	"errors"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// GitOps tools judge objects with kstatus. An export is current when it is published, failed when
// only a user can help, and in progress otherwise.
func TestHealthByKstatus(t *testing.T) {
	valid := condition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid, "valid")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "exportrecords"}, "web", errors.New("not allowed"))
	for name, test := range map[string]struct {
		plan   Plan
		result error
		want   status.Status
	}{
		"published":             {Plan{Valid: valid}, nil, status.CurrentStatus},
		"no Service yet":        {Plan{Valid: invalid(mcsv1beta1.ServiceExportReasonNoService, "none")}, nil, status.InProgressStatus},
		"ExternalName":          {Plan{Valid: invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType, "bad")}, nil, status.FailedStatus},
		"namespace not allowed": {Plan{Valid: invalid(v1alpha1.ServiceExportReasonNamespaceNotAllowed, "no")}, nil, status.FailedStatus},
		"too many exports":      {Plan{Valid: invalid(v1alpha1.ServiceExportReasonLimitExceeded, "no")}, nil, status.FailedStatus},
		"being published":       {Plan{Valid: valid, Claims: Claims{Missing: true}}, nil, status.InProgressStatus},
		"no address left":       {Plan{Valid: valid, Claims: Claims{Shortage: errors.New("none")}}, nil, status.FailedStatus},
		"another type": {Plan{Valid: valid, leftOut: &merge.Conflict{Reason: mcsv1beta1.ServiceExportReasonTypeConflict}}, nil,
			status.FailedStatus},
		"broker away":    {Plan{Valid: valid}, errors.New("timeout"), status.InProgressStatus},
		"broker refuses": {Plan{Valid: valid}, forbidden, status.FailedStatus},
		"id taken":       {Plan{Valid: valid}, objects.ErrClusterIDTaken, status.FailedStatus},
	} {
		t.Run(name, func(t *testing.T) {
			export := &mcsv1beta1.ServiceExport{}
			ready := readiness(export, test.plan, test.result)
			export.Status.Conditions = []metav1.Condition{test.plan.Valid, ready}
			if stalled, is := stalledBy(test.plan.Valid, ready); is {
				export.Status.Conditions = append(export.Status.Conditions, stalled)
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(export)
			if err != nil {
				t.Fatal(err)
			}
			got, err := status.Compute(&unstructured.Unstructured{Object: content})
			if err != nil || got.Status != test.want {
				t.Errorf("kstatus: %+v (%v), want %s", got, err, test.want)
			}
		})
	}
}
