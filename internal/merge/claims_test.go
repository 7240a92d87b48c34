package merge

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// claim is a record of cluster that is that many seconds old on the broker, or not there if age is
// 0.
func claim(cluster string, age int, ips ...string) *v1alpha1.ExportRecord {
	r := &v1alpha1.ExportRecord{Spec: v1alpha1.ExportRecordSpec{ClusterID: v1alpha1.ClusterID(cluster), ClusterSetIPs: ips}}
	r.Name = "web.shop." + cluster
	if age > 0 {
		r.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-age), 0))
	}
	return r
}

func TestClusterSetIPsOfAService(t *testing.T) {
	accept := func(addr netip.Addr) bool { return addr != netip.MustParseAddr("243.9.9.9") }
	for name, test := range map[string]struct {
		records []*v1alpha1.ExportRecord
		want    string
	}{
		"none":                     {nil, ""},
		"no claim":                 {[]*v1alpha1.ExportRecord{claim("a", 1)}, ""},
		"the oldest record":        {[]*v1alpha1.ExportRecord{claim("a", 1, "243.0.0.1"), claim("b", 2, "243.1.0.1")}, "243.1.0.1 of b "},
		"a tie goes to the id":     {[]*v1alpha1.ExportRecord{claim("b", 1, "243.1.0.1"), claim("a", 1, "243.0.0.1")}, "243.0.0.1 of a "},
		"a record to come is last": {[]*v1alpha1.ExportRecord{claim("a", 0, "243.0.0.1"), claim("b", 1, "243.1.0.1")}, "243.1.0.1 of b "},
		"families of two clusters": {
			[]*v1alpha1.ExportRecord{claim("a", 1, "fd00::1"), claim("b", 2, "243.1.0.1")}, "243.1.0.1 of b fd00::1 of a ",
		},
		"one that is not accepted":    {[]*v1alpha1.ExportRecord{claim("a", 3, "243.9.9.9"), claim("b", 2, "243.1.0.1")}, "243.1.0.1 of b "},
		"one that is not an address":  {[]*v1alpha1.ExportRecord{claim("a", 3, "x"), claim("b", 2, "243.1.0.1")}, "243.1.0.1 of b "},
		"a second of the same family": {[]*v1alpha1.ExportRecord{claim("a", 3, "243.0.0.1", "243.0.0.2")}, "243.0.0.1 of a "},
	} {
		got := ""
		for _, c := range ClusterSetIPs(test.records, accept) {
			got += c.IP.String() + " of " + c.Cluster + " "
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestServiceThatHasAClusterSetIP(t *testing.T) {
	for name, test := range map[string]struct {
		records []*v1alpha1.ExportRecord
		owner   string
		want    string
	}{
		"the oldest claim":                   {[]*v1alpha1.ExportRecord{claim("a", 1), claim("b", 2)}, "", "web.shop.b"},
		"the owner of the block precedes":    {[]*v1alpha1.ExportRecord{claim("a", 1), claim("b", 2)}, "a", "web.shop.a"},
		"an owner without claim has no part": {[]*v1alpha1.ExportRecord{claim("a", 1), claim("b", 2)}, "c", "web.shop.b"},
	} {
		if got := FirstClaimant(test.records, test.owner).Name; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if FirstClaimant(nil, "a") != nil {
		t.Error("a claimant without claims")
	}
}
