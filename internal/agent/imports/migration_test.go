package imports

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

func TestWhoWritesTheServiceImport(t *testing.T) {
	own := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{objects.LabelManagedBy: objects.ManagedBySeamark}}}
	tests := []struct {
		phase                     v1alpha1.MigrationPhase
		missing, managed, foreign bool // whether it is left to Lighthouse
	}{
		{"", false, false, false},
		{v1alpha1.MigrationShadow, true, false, true},
		{v1alpha1.MigrationSwitched, false, false, true},
		{v1alpha1.MigrationStopping, false, false, true},
		{v1alpha1.MigrationAdopting, false, false, false},
		{v1alpha1.MigrationFinished, false, false, false},
		{v1alpha1.MigrationReturning, false, true, true},
		{"a phase of a later version", false, false, false},
	}
	for _, test := range tests {
		for existing, want := range map[*mcsv1beta1.ServiceImport]bool{nil: test.missing, own: test.managed, {}: test.foreign} {
			in := Input{Settings: Settings{Migration: test.phase}, Existing: existing}
			if got := in.leavesImport(); got != want {
				t.Errorf("phase %q, ServiceImport %v: left %v, want %v", test.phase, existing, got, want)
			}
		}
	}
}
