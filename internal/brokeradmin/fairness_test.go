package brokeradmin

import (
	"math"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// A spec is replaced only as long as it is the one that Seamark wrote last.
func TestReplaceSpec(t *testing.T) {
	own := map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}
	for name, tc := range map[string]struct {
		labels     map[string]string
		written    string
		generation int64
		shares     int
		want       bool
	}{
		"as installed":             {own, "1", 1, 10, true},
		"as upgraded":              {own, "4", 4, 10, true},
		"equal":                    {own, "1", 1, 50, false},
		"edited":                   {own, "1", 2, 10, false},
		"edited and equal":         {own, "1", 2, 50, false},
		"without the annotation":   {own, "", 1, 10, false},
		"created by another party": {nil, "1", 1, 10, false},
	} {
		obj := &metav1.ObjectMeta{Labels: tc.labels, Generation: tc.generation, Annotations: map[string]string{annotationGeneration: tc.written}}
		have := tc.shares
		if got := replaceSpec(obj, &have, 50); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
		if tc.want && (have != 50 || obj.Annotations[annotationGeneration] != map[int64]string{1: "2", 4: "5"}[tc.generation]) {
			t.Errorf("%s: %d, %v", name, have, obj.Annotations)
		}
		if !tc.want && (have != tc.shares || obj.Annotations[annotationGeneration] != tc.written) {
			t.Errorf("%s was changed: %d, %v", name, have, obj.Annotations)
		}
	}
}

// Each member is a flow, leases are matched first, two brokers share nothing, and the queues hold
// the watches of a thousand members.
func TestFairnessOf(t *testing.T) {
	names := map[string]bool{}
	for _, namespace := range []string{"a", "b"} {
		all := fairnessOf(namespace)
		if all[0].schema.Spec.MatchingPrecedence >= all[1].schema.Spec.MatchingPrecedence {
			t.Error("leases must be matched before everything else")
		}
		for _, f := range all {
			spec, limited := f.schema.Spec, f.level.Spec.Limited
			if names[f.schema.Name] {
				t.Errorf("two FlowSchemas are called %s", f.schema.Name)
			}
			names[f.schema.Name] = true
			if spec.PriorityLevelConfiguration.Name != f.level.Name || spec.MatchingPrecedence >= 9000 ||
				spec.DistinguisherMethod.Type != flowcontrolv1.FlowDistinguisherMethodByUserType ||
				spec.Rules[0].Subjects[0].Group.Name != "system:serviceaccounts:"+namespace {
				t.Errorf("%s: %+v", f.schema.Name, spec)
			}
			q := limited.LimitResponse.Queuing
			if entropy := float64(q.HandSize) * math.Log2(float64(q.Queues)); entropy > 60 {
				t.Errorf("%s: an API server refuses hands of %.1f bits", f.level.Name, entropy)
			}
		}
		const members, watches = 1000, 6
		if q := all[1].level.Spec.Limited.LimitResponse.Queuing; q.Queues*q.QueueLengthLimit < members*watches {
			t.Errorf("%+v holds less than %d watches of %d members", q, watches, members)
		}
	}
}
