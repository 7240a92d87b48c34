package crds

import (
	"slices"
	"strings"
	"testing"

	mcscrd "sigs.k8s.io/mcs-api/config/crd"
)

func TestDecideBesideSubmariner(t *testing.T) {
	tests := []struct {
		why    string
		change []func(*crd)
		action Action
		reason string
	}{
		{"as wanted", []func(*crd){stores("v1alpha1")}, Keep, "is installed"},
		{"as joined without Submariner", []func(*crd){stores("v1beta1")}, Update, "could not start otherwise"},
		{"as Submariner's operator writes it", []func(*crd){
			label(mcscrd.ReleaseVersionLabel, "v0.4.1"), only("v1alpha1"), stores("v1alpha1"),
		}, Update, "from MCS API v0.4.1"},
		{"newer", []func(*crd){label(mcscrd.ReleaseVersionLabel, "v0.6.0"), stores("v1beta1")}, Keep, "newer"},
	}
	for _, name := range []string{"serviceimports.multicluster.x-k8s.io", "serviceexports.multicluster.x-k8s.io"} {
		for _, test := range tests {
			t.Run(name+", "+test.why, func(t *testing.T) {
				wanted := definition(t, Member, name)
				existing := wanted.CRD.DeepCopy()
				for _, change := range test.change {
					change(existing)
				}
				beside := wanted.BesideSubmariner()
				got := Decide(existing, beside)
				if got.Action != test.action || !strings.Contains(got.Reason, test.reason) {
					t.Errorf("got %s (%s), want %s (…%s…)", got.Action, got.Reason, test.action, test.reason)
				}
				if StorageVersion(wanted.CRD) != "v1beta1" {
					t.Error("the definition for other clusters was changed")
				}
				merged := mergedCRD(existing, beside.CRD)
				var served []string
				for _, v := range merged.Spec.Versions {
					if v.Served {
						served = append(served, v.Name)
					}
				}
				if StorageVersion(merged) != "v1alpha1" || !slices.Equal(served, []string{"v1alpha1", "v1beta1"}) {
					t.Errorf("the result stores %s and serves %v, want v1alpha1 and both", StorageVersion(merged), served)
				}
			})
		}
	}
	for _, name := range []string{"clusterproperties.about.k8s.io", "clusterclaims.multicluster.k8s.io"} {
		if d := definition(t, Member, name); d.BesideSubmariner().storesOldest {
			t.Errorf("%s is no kind of Submariner's operator, but changed", name)
		}
	}
}
