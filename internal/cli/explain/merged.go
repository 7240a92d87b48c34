package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/addresses"
)

// explainMerge adds the service that all exports together make, and their conflicts.
func (e *explainer) explainMerge() {
	if e.merged.Empty() {
		return
	}
	spec := &e.merged.Spec
	m := &Merged{
		Type: string(spec.Type), Mode: e.merged.Mode, Precedence: e.merged.Clusters,
		Ports: []string{}, Families: []string{}, Policies: policies(spec),
	}
	for _, p := range spec.Ports {
		m.Ports = append(m.Ports, describePort(p.Name, p.Protocol, p.Port))
	}
	for _, f := range spec.IPFamilies {
		m.Families = append(m.Families, string(f))
	}
	for id, why := range e.merged.LeftOut {
		if m.LeftOut == nil {
			m.LeftOut = map[string]string{}
		}
		m.LeftOut[id] = string(why)
	}
	e.setAddresses(m)
	e.report.Merged = m
	for _, c := range e.merged.Conflicts {
		e.explainConflict(c)
	}
	e.explainAddress(m)
}

// setAddresses sets the clusterset IPs that the records claim. Those of the aggregate count only if
// an agent of an earlier version exports the service, which claims none in its record.
func (e *explainer) setAddresses(m *Merged) {
	for _, claim := range merge.ClusterSetIPs(e.records, func(netip.Addr) bool { return true }) {
		m.IPs = append(m.IPs, claim.IP.String())
		m.AllocatedBy = cmp.Or(m.AllocatedBy, e.Broker.blockOwner(claim.IP))
	}
	if a := e.Broker.Aggregate; a != nil {
		if len(m.IPs) == 0 && objects.HasEarlierRecord(e.records) {
			m.IPs = a.Spec.IPs
		}
		m.AllocatedBy = cmp.Or(m.AllocatedBy, a.Annotations[v1alpha1.AnnotationAllocatedBy])
		m.WrittenBy = a.Labels[v1alpha1.LabelWrittenBy]
	}
}

// blockOwner returns the member whose block contains a clusterset IP, "" if there is none.
func (b *Broker) blockOwner(addr netip.Addr) string {
	for i := range b.Members {
		if addresses.Contain(objects.ParsePrefixes(b.Members[i].Spec.ClusterSetIPBlocks), addr) {
			return b.Members[i].Name
		}
	}
	return ""
}

func policies(spec *mcsv1beta1.ServiceImportSpec) string {
	parts := []string{"affinity " + string(spec.SessionAffinity)}
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		parts[0] += fmt.Sprintf(" %ds", ptr.Deref(c.ClientIP.TimeoutSeconds, 0))
	}
	parts = append(parts, "internal traffic "+string(ptr.Deref(spec.InternalTrafficPolicy, "Cluster")))
	if d := ptr.Deref(spec.TrafficDistribution, ""); d != "" {
		parts = append(parts, "distribution "+d)
	}
	return strings.Join(parts, ", ")
}

// explainConflict adds one conflict and how to end it: give the other exports the value of the
// winning one, or withdraw the winning one.
func (e *explainer) explainConflict(c merge.Conflict) {
	losers := make([]string, len(c.Disagree))
	for i, d := range c.Disagree {
		losers[i] = d.Cluster
	}
	names := strings.Join(losers, separator)
	problem, cure := otherConflict, fmt.Sprintf("make %s agree with what won (%s)", names, c.Won)
	switch c.Reason {
	case mcsv1beta1.ServiceExportReasonTypeConflict:
		problem = typeConflict
		cure = fmt.Sprintf("make the Service in %s %s too, or unexport it there; or unexport it in %s: then the next oldest export decides",
			names, c.Won, c.Winner)
	case mcsv1beta1.ServiceExportReasonPortConflict:
		problem = portConflict
		cure = fmt.Sprintf("give the Service the same ports (name, protocol and number) in all clusters: the service has %s; %s %s",
			c.Won, names, differ(losers))
	case mcsv1beta1.ServiceExportReasonIPFamilyConflict:
		problem = familyConflict
		cure = fmt.Sprintf("give the Service the same ipFamilies in all clusters: %s %s", names, differ(losers))
	case v1alpha1.ServiceExportReasonClusterSetIPConflict:
		cure = fmt.Sprintf("set the annotation %s of the ServiceExport in %s to what the service has, %s",
			v1alpha1.AnnotationUseClusterSetIP, names, c.Won)
	case mcsv1beta1.ServiceExportReasonLabelsConflict, mcsv1beta1.ServiceExportReasonAnnotationsConflict:
		cure = fmt.Sprintf("give the ServiceExports in all clusters the same exportedLabels and exportedAnnotations: %s %s",
			names, differ(losers))
	}
	e.report.Conflicts = append(e.report.Conflicts, Conflict{
		Reason: string(c.Reason), Winner: c.Winner, Won: c.Won, Disagree: losers, Message: c.Message(), Cure: cure,
	})
	e.find(problem, names, c.Message(), cure)
}

// differ returns the verb for clusters that disagree.
func differ(clusters []string) string {
	if len(clusters) == 1 {
		return "differs"
	}
	return "differ"
}

// explainAddress adds why a service that should have a clusterset IP has none.
func (e *explainer) explainAddress(m *Merged) {
	if e.merged.Mode != merge.ModeClusterSetIP || len(m.IPs) > 0 {
		return
	}
	for i := range e.Clusters {
		c := &e.Clusters[i]
		if c.Export == nil {
			continue
		}
		ready := meta.FindStatusCondition(c.Export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		if ready != nil && ready.Reason == string(v1alpha1.ServiceExportReasonNoClusterSetIPLeft) {
			e.find(noClusterSetIPLeft, c.ID, ready.Message, fmt.Sprintf("unexport services that are not used, or have the broker's admin "+
				"give the cluster another block (seamark cluster add-block %s); "+
				"or export this one in classic mode (annotation %s: \"false\")", c.ID, v1alpha1.AnnotationUseClusterSetIP))
			return
		}
	}
	e.find(noClusterSetIP, "", "the service should have a clusterset IP, but its exporters have not allocated one",
		"if that lasts longer than some seconds, read the log of the agent of "+e.merged.Clusters[0])
	e.addWaits(e.cluster(e.merged.Clusters[0]), exportReconciler, aggregateReconciler)
}

// explainEndpoints counts the endpoints by cluster and zone, from the cluster itself where it was
// read.
func (e *explainer) explainEndpoints() {
	type place struct{ cluster, zone string }
	counts := map[place]*Endpoints{}
	for _, x := range e.report.Exporters {
		from := e.slicesOf(x.Cluster)
		if c := e.cluster(x.Cluster); c != nil && c.Export != nil {
			from = c.Slices
		}
		for i := range from {
			for j := range from[i].Endpoints {
				end := &from[i].Endpoints[j]
				at := place{x.Cluster, ptr.Deref(end.Zone, "")}
				if counts[at] == nil {
					counts[at] = &Endpoints{Cluster: at.cluster, Zone: at.zone}
				}
				counts[at].add(end)
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b place) int {
		if c := strings.Compare(a.cluster, b.cluster); c != 0 {
			return c
		}
		return strings.Compare(a.zone, b.zone)
	})
	for _, k := range keys {
		e.report.Endpoints = append(e.report.Endpoints, *counts[k])
	}
}

func (n *Endpoints) add(end *discoveryv1.Endpoint) {
	switch {
	case ptr.Deref(end.Conditions.Terminating, false):
		n.Terminating++
	case ptr.Deref(end.Conditions.Ready, true):
		n.Ready++
	default:
		n.NotReady++
	}
}
