package imports

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

func TestWhyThereIsNoAddress(t *testing.T) {
	name := objects.DerivedServiceName("web")
	services := schema.GroupResource{Resource: "services"}
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
	}{
		"no clusterset IP": {v1alpha1.DataPlaneNFTables, claims(), "Pending", waiting},
		"clusterset IP of another family": {
			v1alpha1.DataPlaneNone, claims("fd00:243::9"), "Pending", waiting,
		},
		"outside the ranges": {
			v1alpha1.DataPlaneNone, claims("10.0.0.1"), "ClusterSetIPRejected",
			"clusterset IP 10.0.0.1 is not used: it is outside the clusterset's ranges or belongs to another service",
		},
		"two outside the ranges": {
			v1alpha1.DataPlaneNone, claims("10.0.0.1", "fd00::1"), "ClusterSetIPRejected",
			"clusterset IPs 10.0.0.1 and fd00::1 are not used: they are outside the clusterset's ranges or belong to another service",
		},
		"no derived Service yet": {v1alpha1.DataPlaneService, func(*Input) {}, "Pending", "waiting for its Service " + name},
		"a Service of that name": {
			v1alpha1.DataPlaneService, func(in *Input) { in.Derived = foreign }, "DerivedServiceForeign",
			"there is already a Service " + name + " that is not managed by Seamark: delete it or give it another name",
		},
		"derived Service refused": {
			v1alpha1.DataPlaneService, func(in *Input) { in.DerivedError = errors.New("exceeded quota") }, "DerivedServiceRefused",
			"its Service " + name + " cannot be written: exceeded quota",
		},
		"another client was first": {
			v1alpha1.DataPlaneService, func(in *Input) { in.DerivedError = apierrors.NewAlreadyExists(services, name) },
			"Pending", "waiting for its Service " + name,
		},
	} {
		in := input([]*v1alpha1.ExportRecord{record("a", 1)})
		in.DataPlane = objects.DataPlaneOf(test.plane)
		test.change(&in)
		if c := readyCondition(Decide(in)); c.Status != metav1.ConditionFalse || c.Reason != test.reason || c.Message != test.message {
			t.Errorf("%s: %+v", title, c)
		}
	}
}

// The conditions beside Ready go when their cause does, and an event is sent only for new refusals.
func TestOptionalConditionsComeAndGo(t *testing.T) {
	in := input([]*v1alpha1.ExportRecord{record("a", 1)}, slice("a", "s", "127.0.0.1", "10.1.0.1"))
	in.Stale = map[string]bool{"a": true}
	var status []metav1.Condition
	mergeConditions(&status, Decide(in).Import.Status.Conditions, 1)
	if len(status) != 3 || status[0].Type != "Ready" || newlyRefused(nil, status) != status[2].Message {
		t.Fatalf("refused and stale: %+v", status)
	}
	if again := newlyRefused(status, status); again != "" {
		t.Errorf("the same refusal is announced twice: %s", again)
	}
	before := append([]metav1.Condition(nil), status...)
	mergeConditions(&status, Decide(input([]*v1alpha1.ExportRecord{record("a", 1)}, slice("a", "s", "10.1.0.1"))).Import.Status.Conditions, 1)
	if len(status) != 1 || status[0].Type != "Ready" || newlyRefused(before, status) != "" {
		t.Errorf("after both ended: %+v", status)
	}
}
