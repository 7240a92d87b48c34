// Package aggregate maintains the ServiceImport on the broker: the merged service, for people and
// tools. Nothing depends on it: every member merges the records and takes the clusterset IPs from
// them. Every member computes the same aggregate from the same records, so one of them writes it:
// the oldest exporter that is not stale. The others write it if that one does not.
package aggregate

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// cleanupDelay is how long other members wait before they delete an aggregate that its exporters
// left behind.
const cleanupDelay = 30 * time.Second

// Input is all that was read to decide about one service's aggregate.
type Input struct {
	ClusterID       string
	BrokerNamespace string
	Service         types.NamespacedName
	Records         []*v1alpha1.ExportRecord
	Existing        *mcsv1beta1.ServiceImport
	// Stale are the clusters that have not been heard from.
	Stale map[string]bool
	// Accepts reports whether a clusterset IP may be used for this service.
	Accepts func(netip.Addr) bool
	// BlockOwner returns the member whose block contains a clusterset IP, "" if there is none.
	BlockOwner func(netip.Addr) string
}

// Plan is what this member should write of the aggregate, and when.
type Plan struct {
	// Want is the aggregate as it should be, nil if no cluster exports the service. Its status lists
	// the clusters that are listed now, with this member added or removed: each member maintains only
	// its own entry.
	Want *mcsv1beta1.ServiceImport
	// Spec, Status and Delete report what this member has to write. Of the status it is only its own
	// entry.
	Spec, Status, Delete bool
	// Ahead is how many others are to write their entries before this member writes its own.
	Ahead int
	// Delay is how long this member leaves Spec or Delete to others, counted from when it first saw
	// the difference.
	Delay time.Duration
	// Waits is why this member leaves a difference to others.
	Waits objects.WaitReason
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
	plan.Spec = exporter && (in.Existing == nil || !isNewer(in.Existing, in.Records) && !sameSpec(in.Existing, plan.Want))
	listed := clusterNames(in.Existing)
	plan.Status = (in.Existing != nil || plan.Spec) && slices.Contains(listed, in.ClusterID) != slices.Contains(merged.Clusters, in.ClusterID)
	if plan.Status {
		plan.Ahead = ahead(in.ClusterID, listed, merged.Clusters, in.Stale)
	}
	if plan.Spec && (merged.FirstLive(in.Stale) != in.ClusterID || in.otherWriter()) {
		plan.Delay, plan.Waits = in.takeoverDelay(), objects.WaitForOther
	}
	return plan
}

// takeoverDelay is how long this member leaves the aggregate to the exporter with precedence. The
// more exporters there are, the longer is the time over which they are spread.
func (in Input) takeoverDelay() time.Duration {
	return objects.TakeoverDelay(in.ClusterID, in.Service) + objects.Jitter(in.ClusterID, in.Service, turns(len(in.Records)))
}

// otherWriter reports whether another living member wrote the aggregate. Members that disagree,
// because one of them has just returned or its watch is behind, must not overwrite each other at
// once. The other may have a record that is not seen here yet.
func (in Input) otherWriter() bool {
	if in.Existing == nil {
		return false
	}
	writer := in.Existing.Labels[v1alpha1.LabelWrittenBy]
	return writer != "" && writer != in.ClusterID && !in.Stale[writer]
}

// clusterSetIPs returns the clusterset IPs that the records claim. Agents of an earlier version
// claimed none in their records: while such an agent exports the service, the aggregate's own
// clusterset IPs stay.
func clusterSetIPs(in Input) []netip.Addr {
	var ips []netip.Addr
	for _, claim := range merge.ClusterSetIPs(in.Records, in.Accepts) {
		ips = append(ips, claim.IP)
	}
	if in.Existing == nil || !objects.HasEarlierRecord(in.Records) {
		return ips
	}
	for _, addr := range objects.ParseAddresses(in.Existing.Spec.IPs) {
		if !slices.ContainsFunc(ips, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			ips = append(ips, addr)
		}
	}
	return ips
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
		return Plan{Want: want, Status: true, Ahead: ahead(in.ClusterID, clusters, nil, in.Stale)}
	case len(clusters) == 0:
		// A new aggregate has an empty list too: this member may see it before the records it was made
		// from.
		return Plan{Delete: true, Delay: cleanupDelay + objects.Jitter(in.ClusterID, in.Service, cleanupDelay), Waits: objects.WaitForOther}
	}
	return Plan{Waits: objects.WaitForOther} // the listed clusters, or the broker's admin, remove their entries
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
	switch merged.Mode {
	case merge.ModeClusterSetIP, merge.ModeClassic:
		uses := strconv.FormatBool(merged.Mode == merge.ModeClusterSetIP)
		si.Annotations[v1alpha1.AnnotationUseClusterSetIP], si.Annotations[v1alpha1.AnnotationUseClusterSetIPAlias] = uses, uses
	}
	setClusterSetIPs(in, si)
	si.Status.Clusters = clusterList(clusterNames(in.Existing), in.ClusterID, slices.Contains(merged.Clusters, in.ClusterID))
	return si
}

// setClusterSetIPs sets the clusterset IPs, and the cluster that allocated them.
func setClusterSetIPs(in Input, si *mcsv1beta1.ServiceImport) {
	ips := clusterSetIPs(in)
	for _, addr := range ips {
		si.Spec.IPs = append(si.Spec.IPs, addr.String())
	}
	if len(ips) == 0 {
		return
	}
	by := in.BlockOwner(ips[0])
	if by == "" && in.Existing != nil {
		by = in.Existing.Annotations[v1alpha1.AnnotationAllocatedBy] // that cluster is no longer a member
	}
	if by != "" {
		si.Annotations[v1alpha1.AnnotationAllocatedBy], si.Annotations[v1alpha1.AnnotationAllocatedByAlias] = by, by
	}
}

// isNewer reports whether an exporter of the service has a later version of the merge rules and
// wrote the aggregate with it. It is then left as it is. A version that no exporter has was not
// written by an agent.
func isNewer(existing *mcsv1beta1.ServiceImport, records []*v1alpha1.ExportRecord) bool {
	version, err := strconv.Atoi(existing.Annotations[v1alpha1.AnnotationMergeVersion])
	return err == nil && version > merge.Version &&
		slices.ContainsFunc(records, func(r *v1alpha1.ExportRecord) bool { return int(r.Spec.MergeVersion) >= version })
}

// sameSpec compares everything but the writer: members that agree write nothing.
func sameSpec(a, b *mcsv1beta1.ServiceImport) bool {
	return maps.Equal(withoutWriter(a.Labels), withoutWriter(b.Labels)) && maps.Equal(a.Annotations, b.Annotations) &&
		apply.SameImportSpec(&a.Spec, &b.Spec)
}

func withoutWriter(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	delete(out, v1alpha1.LabelWrittenBy)
	return out
}
