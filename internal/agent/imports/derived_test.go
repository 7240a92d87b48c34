package imports

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A derived Service keeps a family that its service lost: the API server would give it another
// ClusterIP when the family returns.
func TestDerivedServiceKeepsItsFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	type families = []corev1.IPFamily
	both := families{v4, v6}
	for name, test := range map[string]struct {
		has, ofService, ofCluster, want families
		ips                             []string
	}{
		"new":                       {nil, families{v6, v4}, both, families{v6, v4}, []string{}},
		"the service lost a family": {both, families{v6}, both, both, []string{"a", "b"}},
		"the service has another":   {families{v4}, families{v6}, both, both, []string{"a"}},
		"the cluster lost a family": {both, families{v4}, families{v4}, families{v4}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := corev1.ServiceSpec{IPFamilies: test.has, ClusterIPs: []string{"a", "b"}[:len(test.has)]}
			setFamilies(&spec, test.ofService, test.ofCluster)
			dual := *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack
			if !slices.Equal(spec.IPFamilies, test.want) || !slices.Equal(spec.ClusterIPs, test.ips) || dual != (len(test.want) > 1) {
				t.Errorf("families %v, ClusterIPs %v, dual stack %t", spec.IPFamilies, spec.ClusterIPs, dual)
			}
		})
	}
}
