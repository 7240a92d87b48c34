package objects

import (
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

func TestForwardedRanges(t *testing.T) {
	member := func(name string, granted, pods []v1alpha1.CIDR) v1alpha1.Cluster {
		return v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.ClusterSpec{EndpointRanges: granted}, Status: v1alpha1.ClusterStatus{PodCIDRs: pods}}
	}
	set := &v1alpha1.ClusterSet{}
	set.Spec.ClusterSetIP.Ranges = []v1alpha1.CIDR{"243.0.0.0/8", "fd00:243::/32"}
	own := ParsePrefixes([]string{"10.1.0.0/16", "10.96.0.0/12"})
	got := ForwardedRanges(set, []v1alpha1.Cluster{
		member("east", nil, []v1alpha1.CIDR{"10.1.0.0/16"}),
		member("west", nil, []v1alpha1.CIDR{"10.2.0.0/16", "fd00:2::/64", "10.2.0.0/16"}),
		member("granted", []v1alpha1.CIDR{"10.3.0.0/16"}, []v1alpha1.CIDR{"10.4.0.0/16"}),
		member("overlapping", nil, []v1alpha1.CIDR{"10.0.0.0/8", "10.96.0.10/32", "10.1.7.0/24"}),
		member("hostile", nil, []v1alpha1.CIDR{"0.0.0.0/0", "0.0.0.0/1", "::/0", "nonsense"}),
	}, "east", own)
	var want []netip.Prefix
	for _, text := range []string{"10.2.0.0/16", "10.3.0.0/16", "243.0.0.0/8", "fd00:2::/64", "fd00:243::/32"} {
		want = append(want, netip.MustParsePrefix(text))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
