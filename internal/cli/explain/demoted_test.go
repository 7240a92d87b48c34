package explain

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Only lists of members that are alive count, and only for clusters that are silent.
func TestDemoted(t *testing.T) {
	lives := map[string]Life{
		"alive": {Joined: true, Alive: true}, "other": {Joined: true, Alive: true},
		"silent": {Joined: true}, "dead": {Joined: true}, "invited": {},
	}
	listing := func(member string, demotes ...string) v1alpha1.Cluster {
		return v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: member}, Status: v1alpha1.ClusterStatus{Demoted: demotes}}
	}
	members := []v1alpha1.Cluster{listing("alive", "silent", "other", "invited", "unknown"), listing("dead", "dead"), listing("other")}
	if got := slices.Sorted(maps.Keys(Demoted(members, lives))); !slices.Equal(got, []string{"silent"}) {
		t.Errorf("demoted: %v", got)
	}
}
