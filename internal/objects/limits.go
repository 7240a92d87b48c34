package objects

import (
	"cmp"
	"fmt"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Limits bound what one member publishes; see v1alpha1.ClusterLimits.
type Limits struct{ Services, Endpoints, Bytes int }

// DefaultLimits are those of a member whose Cluster names none.
var DefaultLimits = Limits{Services: 5000, Endpoints: 100_000, Bytes: 32 << 20}

// LimitsOf returns the limits of a member; cluster may be nil.
func LimitsOf(cluster *v1alpha1.Cluster) Limits {
	if cluster == nil {
		return DefaultLimits
	}
	l := cluster.Spec.Limits
	return Limits{
		Services:  cmp.Or(int(l.Services), DefaultLimits.Services),
		Endpoints: cmp.Or(int(l.Endpoints), DefaultLimits.Endpoints),
		Bytes:     cmp.Or(int(l.Bytes), DefaultLimits.Bytes),
	}
}

func (l Limits) String() string {
	return fmt.Sprintf("%d services, %d endpoints and %d bytes of exported labels, annotations and ports", l.Services, l.Endpoints, l.Bytes)
}
