// Package aggregate keeps the ServiceImport on the broker: the merged service for people and tools to see, and the one place
// for what must be decided once, the clusterset IPs. Every member computes the same aggregate from the same records, so one
// of them writes it: the oldest exporter that is alive. The others step in when it does not.
package aggregate

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/broker"
	"github.com/seamark-dev/seamark/internal/merge"
)

const (
	// stepIn is how long an exporter waits for the one before it; each adds up to as much again, its own share, so that they
	// do not all step in at once.
	stepIn = 2 * time.Second
	// sweep is how long anybody else waits before clearing away what all its exporters left behind.
	sweep = 30 * time.Second
)

// Input is all that was read to decide about one service's aggregate.
type Input struct {
	ClusterID       string
	BrokerNamespace string
	Service         types.NamespacedName
	Records         []*v1alpha1.ExportRecord
	Existing        *mcsv1beta1.ServiceImport
	// Stale are the clusters that have not been heard from.
	Stale map[string]bool
}

// Plan is what should be written, by this member, and when.
type Plan struct {
	// Want is the aggregate as it should be; nil when there should be none.
	Want *mcsv1beta1.ServiceImport
	// Wait is how long this member leaves it to others, counted from when it first saw the difference.
	Wait time.Duration
	// Nothing is true when all is as it should be, or is none of this member's business.
	Nothing bool
}

// Decide tells what the aggregate should be and whether this member should see to it.
func Decide(in Input) Plan {
	if in.Existing != nil && in.Existing.DeletionTimestamp != nil {
		return Plan{Nothing: true}
	}
	if len(in.Records) == 0 {
		return removal(in)
	}
	specs := make([]v1alpha1.ExportRecordSpec, 0, len(in.Records))
	exporter := false
	for _, r := range in.Records {
		specs = append(specs, r.Spec)
		exporter = exporter || string(r.Spec.ClusterID) == in.ClusterID
	}
	merged := merge.Merge(specs)
	plan := Plan{Want: aggregateOf(in, merged)}
	switch {
	case !exporter || merged.Empty(), in.Existing != nil && newer(in.Existing), same(in.Existing, plan.Want):
		return Plan{Nothing: true}
	case firstAlive(merged.Clusters, in.Stale) != in.ClusterID:
		plan.Wait = stepIn + share(in.ClusterID, in.Service, stepIn)
	}
	return plan
}

// removal: with no record left the last exporters clear the aggregate away, and its addresses are free again.
func removal(in Input) Plan {
	if in.Existing == nil {
		return Plan{Nothing: true}
	}
	clusters := clusterNames(in.Existing)
	switch {
	case len(clusters) == 0, len(clusters) == 1 && clusters[0] == in.ClusterID:
		return Plan{}
	case slices.Contains(clusters, in.ClusterID):
		return Plan{Wait: share(in.ClusterID, in.Service, stepIn)}
	}
	return Plan{Wait: sweep + share(in.ClusterID, in.Service, sweep)}
}

func aggregateOf(in Input, merged merge.Result) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   in.BrokerNamespace,
			Name:        broker.AggregateName(in.Service),
			Labels:      map[string]string{},
			Annotations: map[string]string{},
		},
		Spec: merged.Spec,
	}
	maps.Copy(si.Labels, merged.Labels)
	maps.Copy(si.Labels, broker.Labels(in.Service, ""))
	si.Labels[broker.LabelManagedBy] = broker.ManagedBySeamark
	si.Labels[v1alpha1.LabelWrittenBy] = in.ClusterID
	maps.Copy(si.Annotations, merged.Annotations)
	si.Annotations[v1alpha1.AnnotationMergeVersion] = strconv.Itoa(merge.Version)
	if in.Existing != nil {
		// An address lives as long as its ServiceImport, whatever becomes of the exporters.
		si.Spec.IPs = in.Existing.Spec.IPs
		if by, ok := in.Existing.Annotations[v1alpha1.AnnotationAllocatedBy]; ok {
			si.Annotations[v1alpha1.AnnotationAllocatedBy] = by
		}
	}
	for _, c := range slices.Sorted(slices.Values(merged.Clusters)) {
		si.Status.Clusters = append(si.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: c})
	}
	return si
}

// newer tells an aggregate that a later version of the merge rules wrote: it knows better.
func newer(existing *mcsv1beta1.ServiceImport) bool {
	version, err := strconv.Atoi(existing.Annotations[v1alpha1.AnnotationMergeVersion])
	return err == nil && version > merge.Version
}

func same(existing, want *mcsv1beta1.ServiceImport) bool {
	return existing != nil && sameSpec(existing, want) && equality.Semantic.DeepEqual(existing.Status.Clusters, want.Status.Clusters)
}

// sameSpec compares all but who wrote it: members that agree have nothing to write.
func sameSpec(a, b *mcsv1beta1.ServiceImport) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(unsigned(a.Labels), unsigned(b.Labels)) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

func unsigned(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	delete(out, v1alpha1.LabelWrittenBy)
	return out
}

// firstAlive is the exporter with precedence among those alive, or the very first when none is.
func firstAlive(clusters []string, stale map[string]bool) string {
	for _, c := range clusters {
		if !stale[c] {
			return c
		}
	}
	return clusters[0]
}

func clusterNames(si *mcsv1beta1.ServiceImport) []string {
	names := make([]string, len(si.Status.Clusters))
	for i, c := range si.Status.Clusters {
		names[i] = c.Cluster
	}
	return names
}

// share spreads members evenly over a span, each always at the same place for the same service.
func share(clusterID string, service types.NamespacedName, span time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(clusterID + "/" + service.String()))
	return span * time.Duration(h.Sum32()%1000) / 1000
}
