package explain

import (
	"maps"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Only lists of members that are alive count, and only for clusters that are silent.
func TestDemoted(t *testing.T) {
	lives := map[string]Life{
		"alive": {Joined: true, Alive: true}, "other": {Joined: true, Alive: true},
		"silent": {Joined: true}, "dead": {Joined: true}, "invited": {},
	}
	listing := func(member string, demotes ...string) coordinationv1.Lease {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: member}}
		objects.SetDemoted(&lease, demotes)
		return lease
	}
	leases := []coordinationv1.Lease{listing("alive", "silent", "other", "invited", "unknown"), listing("dead", "dead"), listing("other")}
	if got := slices.Sorted(maps.Keys(Demoted(leases, lives))); !slices.Equal(got, []string{"silent"}) {
		t.Errorf("demoted: %v", got)
	}
}
