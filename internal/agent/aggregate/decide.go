// Package aggregate keeps the ServiceImport on the broker: the merged service for people and tools to see, and the one place
// for what must be decided once, the clusterset IPs. Every member computes the same aggregate from the same records, so one
// of them writes it: the oldest exporter that is alive. The others step in when it does not.
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
	// Remembered is what this cluster last saw of the service's addresses, and who had allocated them: a broker that was reset gets the
	// service back with the addresses its clients know.
	Remembered Addresses
	// Offer gives an address of this member's own block for the service, the wanted one if it can.
	Offer func(family corev1.IPFamily, wanted netip.Addr) (netip.Addr, error)
}

// Addresses are the clusterset IPs of a service, and the cluster whose block they are from.
type Addresses struct {
	IPs         []netip.Addr
	AllocatedBy string
}

// AddressesOf reads a service's addresses from an aggregate, leaving out what is no address.
func AddressesOf(si *mcsv1beta1.ServiceImport) Addresses {
	a := Addresses{AllocatedBy: si.Annotations[v1alpha1.AnnotationAllocatedBy]}
	for _, text := range si.Spec.IPs {
		if addr, err := netip.ParseAddr(text); err == nil {
			a.IPs = append(a.IPs, addr)
		}
	}
	return a
}

func (a Addresses) of(family corev1.IPFamily) netip.Addr {
	for _, addr := range a.IPs {
		if (family == corev1.IPv6Protocol) == addr.Is6() {
			return addr
		}
	}
	return netip.Addr{}
}

// Plan is what this member should write of the aggregate, and when.
type Plan struct {
	// Want is the aggregate as it should be; nil when nobody exports the service. Its status lists the clusters that are
	// listed now, with this member added or taken out: each member answers for its own entry alone.
	Want *mcsv1beta1.ServiceImport
	// Spec, Status and Delete tell what differs and is this member's to write.
	Spec, Status, Delete bool
	// Wait is how long this member leaves Spec or Delete to others, counted from when it first saw the difference.
	Wait time.Duration
	// Allocated tells that Want has an address that the aggregate has not: clients wait for it.
	Allocated bool
	// Starved is why an address that the service should have could not be given.
	Shortage error
}

// Nothing tells that all is as it should be, or is none of this member's business.
func (p Plan) Nothing() bool { return !p.Spec && !p.Status && !p.Delete }

// Decide tells what the aggregate should be and what of it this member should see to.
func Decide(in Input) Plan {
	if in.Existing != nil && in.Existing.DeletionTimestamp != nil {
		return Plan{}
	}
	if len(in.Records) == 0 {
		return removal(in)
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
	plan.Spec = exporter && (in.Existing == nil || !newer(in.Existing) && !sameSpec(in.Existing, plan.Want))
	plan.Status = (in.Existing != nil || plan.Spec) && !slices.Equal(clusterNames(in.Existing), clusterNames(plan.Want))
	if plan.Spec && firstAlive(merged.Clusters, in.Stale) != in.ClusterID {
		plan.Wait = stepIn + share(in.ClusterID, in.Service, stepIn)
	}
	return plan
}

// allocate gives the service the addresses it should have and has not. An address once given stays, also while the service has no use
// for it: it may be headless for a while, or of fewer families.
func (p *Plan) allocate(in Input, merged merge.Result) {
	if merged.Mode != merge.ModeClusterSetIP {
		return
	}
	have := AddressesOf(p.Want)
	ips := make([]string, 0, len(merged.Spec.IPFamilies))
	var starved error
	for _, family := range merged.Spec.IPFamilies {
		if addr := have.of(family); addr.IsValid() {
			continue
		}
		wanted := in.Remembered.of(family)
		if by := in.Remembered.AllocatedBy; wanted.IsValid() && by != in.ClusterID && slices.Contains(merged.Clusters, by) && !in.Stale[by] {
			continue // it can give the service its old address back; we cannot
		}
		addr, err := in.Offer(family, wanted)
		if err != nil {
			starved = err
			continue
		}
		p.Allocated = true
		ips = append(ips, addr.String())
	}
	// One address is enough to be reached by: a clusterset may have no range for the other family. And who only stands in has
	// nothing to say before the first in line has had its turn.
	if len(have.IPs)+len(ips) == 0 && (in.Existing != nil || firstAlive(merged.Clusters, in.Stale) == in.ClusterID) {
		p.Shortage = starved
	}
	if !p.Allocated {
		return
	}
	p.Want.Spec.IPs = slices.Concat(p.Want.Spec.IPs, ips)
	if p.Want.Annotations[v1alpha1.AnnotationAllocatedBy] == "" {
		p.Want.Annotations[v1alpha1.AnnotationAllocatedBy] = in.ClusterID
	}
}

// removal: with no record left its exporters take themselves off the list, and the last one clears the aggregate away, so
// that its addresses are free again.
func removal(in Input) Plan {
	if in.Existing == nil {
		return Plan{}
	}
	clusters := clusterNames(in.Existing)
	switch {
	case len(clusters) == 1 && clusters[0] == in.ClusterID, len(clusters) == 0 && in.Existing.Labels[v1alpha1.LabelWrittenBy] == in.ClusterID:
		return Plan{Delete: true}
	case slices.Contains(clusters, in.ClusterID):
		want := in.Existing.DeepCopy()
		want.Status.Clusters = listed(clusters, in.ClusterID, false)
		return Plan{Want: want, Status: true}
	case len(clusters) == 0:
		// An empty list is also how an aggregate begins: another member may see it before it sees the record it was made of.
		return Plan{Delete: true, Wait: sweep + share(in.ClusterID, in.Service, sweep)}
	}
	return Plan{} // those on the list are still to come, or the broker's admin removes them
}

// listed is the list of clusters with one of them added or taken out.
func listed(clusters []string, id string, present bool) []mcsv1beta1.ClusterStatus {
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
		// An address lives as long as its ServiceImport, whatever becomes of the exporters.
		si.Spec.IPs = in.Existing.Spec.IPs
		by := in.Existing.Annotations[v1alpha1.AnnotationAllocatedBy]
		if by == "" && len(si.Spec.IPs) > 0 {
			by = in.Remembered.AllocatedBy // somebody removed it
		}
		if by != "" {
			si.Annotations[v1alpha1.AnnotationAllocatedBy] = by
		}
	}
	si.Status.Clusters = listed(clusterNames(in.Existing), in.ClusterID, slices.Contains(merged.Clusters, in.ClusterID))
	return si
}

// newer tells an aggregate that a later version of the merge rules wrote: it knows better.
func newer(existing *mcsv1beta1.ServiceImport) bool {
	version, err := strconv.Atoi(existing.Annotations[v1alpha1.AnnotationMergeVersion])
	return err == nil && version > merge.Version
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
	if si == nil {
		return nil
	}
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
