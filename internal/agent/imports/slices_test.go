package imports

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// A new service waits for its first slice. One that is imported already, or that this cluster
// exports itself, does not.
func TestWhichServicesLackSlices(t *testing.T) {
	records := []*v1alpha1.ExportRecord{record("a", 1)}
	for name, test := range map[string]struct {
		in   Input
		want bool
	}{
		"new, without slices": {input(records), true},
		"new, with a slice":   {input(records, slice("a", "s", "10.1.0.1")), false},
		"not exported":        {input(nil), false},
		"imported":            {with(input(records), func(in *Input) { in.Existing = &mcsv1beta1.ServiceImport{} }), false},
		"exported here":       {with(input(records), func(in *Input) { in.Own.Service = &corev1.Service{} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.in.lacksSlices(Decide(test.in)); got != test.want {
				t.Errorf("it lacks slices: %t, want %t", got, test.want)
			}
		})
	}
}

func with(in Input, change func(*Input)) Input {
	change(&in)
	return in
}
