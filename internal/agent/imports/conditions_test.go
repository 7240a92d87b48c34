package imports

import (
	"errors"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

func TestWhyThereIsNoAddress(t *testing.T) {
	name := objects.DerivedServiceName("web")
	services := schema.GroupResource{Resource: "services"}
	quota := apierrors.NewForbidden(services, name, errors.New("exceeded quota"))
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	claims := func(ips ...string) func(*Input) {
		return func(in *Input) {
			in.Records, in.Remembered = []*v1alpha1.ExportRecord{record("a", 1, claiming(ips...))}, nil
		}
	}
	const waiting = "waiting for a clusterset IP: the exporting clusters have not allocated one yet; " +
		"their ServiceExports say why if they cannot"
	for title, test := range map[string]struct {
		plane           v1alpha1.DataPlane
		change          func(*Input)
		reason, message string
		health          status.Status
	}{
		"no clusterset IP": {v1alpha1.DataPlaneNFTables, claims(), "Pending", waiting, status.InProgressStatus},
		"clusterset IP of another family": {
			v1alpha1.DataPlaneNone, claims("fd00:243::9"), "Pending", waiting, status.InProgressStatus,
		},
		"outside the ranges": {
			v1alpha1.DataPlaneNone, claims("10.0.0.1"), "ClusterSetIPRejected",
			"clusterset IP 10.0.0.1 is not used: it is outside the clusterset's ranges or belongs to another service",
			status.FailedStatus,
		},
		"two outside the ranges": {
			v1alpha1.DataPlaneNone, claims("10.0.0.1", "fd00::1"), "ClusterSetIPRejected",
			"clusterset IPs 10.0.0.1 and fd00::1 are not used: they are outside the clusterset's ranges or belong to another service",
			status.FailedStatus,
		},
		"no derived Service yet": {v1alpha1.DataPlaneService, func(*Input) {}, "Pending", "waiting for its Service " + name,
			status.InProgressStatus},
		"a Service of that name": {
			v1alpha1.DataPlaneService, func(in *Input) { in.Derived = foreign }, "DerivedServiceForeign",
			"there is already a Service " + name + " that is not managed by Seamark: delete it or give it another name",
			status.FailedStatus,
		},
		"derived Service refused": {
			v1alpha1.DataPlaneService, func(in *Input) { in.DerivedError = quota }, "DerivedServiceRefused",
			"its Service " + name + " cannot be written: " + quota.Error(), status.FailedStatus,
		},
		"derived Service not written": {
			v1alpha1.DataPlaneService, func(in *Input) { in.DerivedError = errors.New("timeout") }, "DerivedServiceRefused",
			"its Service " + name + " cannot be written: timeout", status.InProgressStatus,
		},
		"another client was first": {
			v1alpha1.DataPlaneService, func(in *Input) { in.DerivedError = apierrors.NewAlreadyExists(services, name) },
			"Pending", "waiting for its Service " + name, status.InProgressStatus,
		},
	} {
		in := input([]*v1alpha1.ExportRecord{record("a", 1)})
		in.DataPlane = objects.DataPlaneOf(test.plane)
		test.change(&in)
		plan := Decide(in)
		if c := readyCondition(plan); c.Status != metav1.ConditionFalse || c.Reason != test.reason || c.Message != test.message {
			t.Errorf("%s: %+v", title, c)
		}
		if got := healthOf(t, plan.Import); got.Status != test.health || (got.Status == status.FailedStatus && got.Message != test.message) {
			t.Errorf("%s: kstatus: %+v, want %s", title, got, test.health)
		}
	}
}

// healthOf returns how GitOps tools judge an import.
func healthOf(t *testing.T, si *mcsv1beta1.ServiceImport) *status.Result {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(si)
	if err != nil {
		t.Fatal(err)
	}
	got, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The conditions beside Ready go when their cause does, and an event is sent only for new refusals.
func TestOptionalConditionsComeAndGo(t *testing.T) {
	in := input([]*v1alpha1.ExportRecord{record("a", 1)}, slice("a", "s", "127.0.0.1", "10.1.0.1"))
	in.Stale = map[string]bool{"a": true}
	var have []metav1.Condition
	mergeConditions(&have, Decide(in).Import.Status.Conditions, 1)
	if len(have) != 3 || have[0].Type != "Ready" || newlyRefused(nil, have) != have[2].Message {
		t.Fatalf("refused and stale: %+v", have)
	}
	if again := newlyRefused(have, have); again != "" {
		t.Errorf("the same refusal is announced twice: %s", again)
	}
	before := append([]metav1.Condition(nil), have...)
	mergeConditions(&have, Decide(input([]*v1alpha1.ExportRecord{record("a", 1)}, slice("a", "s", "10.1.0.1"))).Import.Status.Conditions, 1)
	if len(have) != 1 || have[0].Type != "Ready" || newlyRefused(before, have) != "" {
		t.Errorf("after both ended: %+v", have)
	}
}
