// Package aggregate maintains the ServiceImport on the broker: the merged service for people and
// tools, and the one place of what must be decided once, the clusterset IPs. Every member computes
// the same aggregate from the same records, so one of them writes it: the oldest exporter that is
// not stale. The others write it if that one does not.
package aggregate

import (
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// takeoverDelay is how long an exporter waits for the exporter with precedence. Each adds up to as
	// much again, so that they do not all write at once.
	takeoverDelay = 2 * time.Second
	// cleanupDelay is how long other members wait before they delete an aggregate that its exporters
	// left behind.
	cleanupDelay = 30 * time.Second
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
	// Remembered are the clusterset IPs that this cluster last saw, and which cluster allocated them:
	// a broker that was restored to an older state gets the service back with the IPs its clients use.
	Remembered Addresses
	// Offer returns a clusterset IP of this member's own block for the service, the wanted one if it
	// is free.
	Offer func(family corev1.IPFamily, wanted netip.Addr) (netip.Addr, error)
}

// Addresses are the clusterset IPs of a service, and the cluster that allocated them from its
// block.
type Addresses struct {
	IPs         []netip.Addr
	AllocatedBy string
}

// AddressesOf returns the clusterset IPs of an aggregate. Texts that are not IP addresses are left
// out.
func AddressesOf(si *mcsv1beta1.ServiceImport) Addresses {
	return Addresses{IPs: objects.ParseAddresses(si.Spec.IPs), AllocatedBy: si.Annotations[v1alpha1.AnnotationAllocatedBy]}
}

func (a Addresses) of(family corev1.IPFamily) netip.Addr {
	for _, addr := range a.IPs {
		if objects.FamilyOf(addr) == family {
			return addr
		}
	}
	return netip.Addr{}
}

// Plan is what this member should write of the aggregate, and when.
type Plan struct {
	// Want is the aggregate as it should be, nil if no cluster exports the service. Its status lists
	// the clusters that are listed now, with this member added or removed: each member maintains only
	// its own entry.
	Want *mcsv1beta1.ServiceImport
	// Spec, Status and Delete report what this member has to write.
	Spec, Status, Delete bool
	// Delay is how long this member leaves Spec or Delete to others, counted from when it first saw
	// the difference.
	Delay time.Duration
	// Waits is why this member leaves a difference to others.
	Waits objects.WaitReason
	// Allocated reports whether Want has a clusterset IP that the aggregate has not: clients wait for
	// it.
	Allocated bool
	// Shortage is why the service has no clusterset IP although it should have one.
	Shortage error
}

// Empty reports whether this member has nothing to write, now or later.
func (p Plan) Empty() bool { return !p.Spec && !p.Status && !p.Delete }

// Decide returns what the aggregate should be, and which of the differences this member writes.
func Decide(in Input) Plan {
	if in.Existing != nil && in.Existing.DeletionTimestamp != nil {
		return Plan{Waits: objects.WaitForDeletion}
	}
	if len(in.Records) == 0 {
		return decideRemoval(in)
	}
	exporter := slices.ContainsFunc(in.Records, func(r *v1alpha1.ExportRecord) bool { return string(r.Spec.ClusterID) == in.ClusterID })
	merged := merge.Merge(in.Records)
	if merged.Empty() {
		return Plan{}
	}
	plan := Plan{Want: aggregateOf(in, merged)}
	if exporter {
		plan.allocate(in, merged)
	}
	plan.Spec = exporter && (in.Existing == nil || !isNewer(in.Existing) && !sameSpec(in.Existing, plan.Want))
	plan.Status = (in.Existing != nil || plan.Spec) && !slices.Equal(clusterNames(in.Existing), clusterNames(plan.Want))
	if plan.Spec && firstLive(merged.Clusters, in.Stale) != in.ClusterID {
		plan.Delay, plan.Waits = takeoverDelay+jitter(in.ClusterID, in.Service, takeoverDelay), objects.WaitForOther
	}
	return plan
}

// allocate adds the clusterset IPs that the service should have and has not. A clusterset IP stays
// with its service even while it is not used, because the service is headless or has fewer
// families.
func (p *Plan) allocate(in Input, merged merge.Result) {
	if merged.Mode != merge.ModeClusterSetIP {
		return
	}
	have := AddressesOf(p.Want)
	ips := make([]string, 0, len(merged.Spec.IPFamilies))
	var shortage error
	for _, family := range merged.Spec.IPFamilies {
		if addr := have.of(family); addr.IsValid() {
			continue
		}
		wanted := in.Remembered.of(family)
		if by := in.Remembered.AllocatedBy; wanted.IsValid() && by != in.ClusterID && slices.Contains(merged.Clusters, by) && !in.Stale[by] {
			p.Waits = objects.WaitForOther // only that cluster can allocate the former clusterset IP
			continue
		}
		addr, err := in.Offer(family, wanted)
		if err != nil {
			shortage = err
			continue
		}
		p.Allocated = true
		ips = append(ips, addr.String())
	}
	// One clusterset IP is enough to be reached: a clusterset may have no range for the other family.
	// Only the first live exporter reports a shortage for a new service.
	if len(have.IPs)+len(ips) == 0 && (in.Existing != nil || firstLive(merged.Clusters, in.Stale) == in.ClusterID) {
		p.Shortage = shortage
	}
	if !p.Allocated {
		return
	}
	p.Want.Spec.IPs = slices.Concat(p.Want.Spec.IPs, ips)
	if p.Want.Annotations[v1alpha1.AnnotationAllocatedBy] == "" {
		p.Want.Annotations[v1alpha1.AnnotationAllocatedBy] = in.ClusterID
	}
}

// decideRemoval decides about an aggregate without records. Its former exporters remove themselves
// from the list of clusters, and the last one deletes the aggregate, which frees its clusterset
// IPs.
func decideRemoval(in Input) Plan {
	if in.Existing == nil {
		return Plan{}
	}
	clusters := clusterNames(in.Existing)
	switch {
	case len(clusters) == 1 && clusters[0] == in.ClusterID,
		len(clusters) == 0 && in.Existing.Labels[v1alpha1.LabelWrittenBy] == in.ClusterID:
		return Plan{Delete: true}
	case slices.Contains(clusters, in.ClusterID):
		want := in.Existing.DeepCopy()
		want.Status.Clusters = clusterList(clusters, in.ClusterID, false)
		return Plan{Want: want, Status: true}
	case len(clusters) == 0:
		// A new aggregate has an empty list too: this member may see it before the records it was made
		// from.
		return Plan{Delete: true, Delay: cleanupDelay + jitter(in.ClusterID, in.Service, cleanupDelay), Waits: objects.WaitForOther}
	}
	return Plan{Waits: objects.WaitForOther} // the listed clusters, or the broker's admin, remove their entries
}

// clusterList returns the status entries of clusters, with one cluster added or removed.
func clusterList(clusters []string, id string, present bool) []mcsv1beta1.ClusterStatus {
	names := slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return c == id })
	if present {
		names = append(names, id)
	}
	slices.Sort(names)
	out := make([]mcsv1beta1.ClusterStatus, len(names))
	for i, name := range names {
		out[i] = mcsv1beta1.ClusterStatus{Cluster: name}
	}
	return out
}

func aggregateOf(in Input, merged merge.Result) *mcsv1beta1.ServiceImport {
	si := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   in.BrokerNamespace,
			Name:        objects.AggregateName(in.Service),
			Labels:      map[string]string{},
			Annotations: map[string]string{},
		},
		Spec: merged.Spec,
	}
	maps.Copy(si.Labels, merged.Labels)
	maps.Copy(si.Labels, objects.Labels(in.Service, ""))
	si.Labels[objects.LabelManagedBy] = objects.ManagedBySeamark
	si.Labels[v1alpha1.LabelWrittenBy] = in.ClusterID
	maps.Copy(si.Annotations, merged.Annotations)
	si.Annotations[v1alpha1.AnnotationMergeVersion] = strconv.Itoa(merge.Version)
	if in.Existing != nil {
		// A clusterset IP lives as long as its ServiceImport, even if all its exporters change.
		si.Spec.IPs = in.Existing.Spec.IPs
		by := in.Existing.Annotations[v1alpha1.AnnotationAllocatedBy]
		if by == "" && len(si.Spec.IPs) > 0 {
			by = in.Remembered.AllocatedBy // the annotation was removed
		}
		if by != "" {
			si.Annotations[v1alpha1.AnnotationAllocatedBy] = by
		}
	}
	si.Status.Clusters = clusterList(clusterNames(in.Existing), in.ClusterID, slices.Contains(merged.Clusters, in.ClusterID))
	return si
}

// isNewer reports whether a later version of the merge rules wrote the aggregate. It is then left
// as it is.
func isNewer(existing *mcsv1beta1.ServiceImport) bool {
	version, err := strconv.Atoi(existing.Annotations[v1alpha1.AnnotationMergeVersion])
	return err == nil && version > merge.Version
}

// sameSpec compares everything but the writer: members that agree write nothing.
func sameSpec(a, b *mcsv1beta1.ServiceImport) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(withoutWriter(a.Labels), withoutWriter(b.Labels)) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

func withoutWriter(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	delete(out, v1alpha1.LabelWrittenBy)
	return out
}

// firstLive returns the first cluster by precedence that is not stale, or the first of all if all
// are.
func firstLive(clusters []string, stale map[string]bool) string {
	for _, c := range clusters {
		if !stale[c] {
			return c
		}
	}
	return clusters[0]
}

func clusterNames(si *mcsv1beta1.ServiceImport) []string {
	if si == nil {
		return nil
	}
	names := make([]string, len(si.Status.Clusters))
	for i, c := range si.Status.Clusters {
		names[i] = c.Cluster
	}
	return names
}

// jitter returns a part of the span that is always the same for a member and a service, and evenly
// distributed over members.
func jitter(clusterID string, service types.NamespacedName, span time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(clusterID + "/" + service.String()))
	return span * time.Duration(h.Sum32()%1000) / 1000
}
