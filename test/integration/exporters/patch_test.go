package exporters

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// The reconciler and the simulator's API server rely on these answers.
func TestAnswersToPatchesOfTheList(t *testing.T) {
	b := newBroker(t, 2)
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects.AggregateName(web), Labels: objects.Labels(web, "")},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}},
	}
	si.Labels[v1alpha1.LabelWrittenBy] = b.ids[0]
	must(t, b.admin.Create(t.Context(), si))
	patch := func(as client.Client, operations string) error {
		defer b.begin()()
		return as.Status().Patch(t.Context(), si.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(operations)))
	}
	first, second := b.clientOf(t, b.ids[0]), b.clientOf(t, b.ids[1])
	for _, step := range []struct {
		name       string
		as         client.Client
		operations string
		cause      metav1.CauseType
		refused    func(error) bool
	}{
		{"the list does not exist", first, `[{"op":"add","path":"/status/clusters/-","value":{"cluster":"member-000"}}]`, "", apierrors.IsInvalid},
		{"the list is created", first, `[{"op":"add","path":"/status","value":{"clusters":[{"cluster":"member-000"}]}}]`, "", nil},
		{"another adds itself", second, `[{"op":"add","path":"/status/clusters/-","value":{"cluster":"member-001"}}]`, "", nil},
		{
			"it is listed already", second, `[{"op":"add","path":"/status/clusters/-","value":{"cluster":"member-001"}}]`,
			metav1.CauseTypeFieldValueDuplicate, apierrors.IsInvalid,
		},
		{
			"it adds another", first, `[{"op":"add","path":"/status/clusters/-","value":{"cluster":"member-002"}}]`,
			"", apierrors.IsForbidden,
		},
		{"it removes another", first, `[{"op":"remove","path":"/status/clusters/1"}]`, "", apierrors.IsForbidden},
		{
			"it is in another place", second,
			`[{"op":"test","path":"/status/clusters/0/cluster","value":"member-001"},{"op":"remove","path":"/status/clusters/0"}]`,
			"", apierrors.IsInvalid,
		},
		{
			"its place does not exist", second,
			`[{"op":"test","path":"/status/clusters/2/cluster","value":"member-001"},{"op":"remove","path":"/status/clusters/2"}]`,
			"", apierrors.IsInvalid,
		},
		{
			"it removes itself", second,
			`[{"op":"test","path":"/status/clusters/1/cluster","value":"member-001"},{"op":"remove","path":"/status/clusters/1"}]`,
			"", nil,
		},
	} {
		err := patch(step.as, step.operations)
		if step.refused == nil {
			must(t, err)
			continue
		}
		var status apierrors.APIStatus
		if !step.refused(err) || !errors.As(err, &status) {
			t.Errorf("%s: %v", step.name, err)
			continue
		}
		causes := []metav1.CauseType{""}
		if d := status.Status().Details; d != nil {
			for _, c := range d.Causes {
				causes = append(causes, c.Type)
			}
		}
		if last := causes[len(causes)-1]; last != step.cause {
			t.Errorf("%s: %v, of causes %q", step.name, err, causes)
		}
	}
}
