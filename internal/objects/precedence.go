package objects

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// longestPrecedence bounds DemoteAfter: members choose how long their leases last.
const longestPrecedence = time.Minute

// DemoteAfter returns for how long a stale cluster keeps its precedence, given how long its lease
// lasts. An agent that restarts is back earlier.
func DemoteAfter(lease time.Duration) time.Duration { return min(3*lease, longestPrecedence) }

// DemotedOn returns the clusters that a member demotes, from its lease on the broker.
func DemotedOn(lease *coordinationv1.Lease) []string {
	return strings.FieldsFunc(lease.Annotations[v1alpha1.AnnotationDemoted], func(r rune) bool { return r == ',' })
}

// SetDemoted records on a member's lease which clusters it demotes.
func SetDemoted(lease *coordinationv1.Lease, clusters []string) {
	if len(clusters) == 0 {
		delete(lease.Annotations, v1alpha1.AnnotationDemoted)
		return
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationDemoted, strings.Join(clusters, ","))
}
