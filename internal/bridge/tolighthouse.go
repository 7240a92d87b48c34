package bridge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// LighthouseInput is all that was read to decide what Lighthouse's broker should have of one
// service of the Seamark clusters.
type LighthouseInput struct {
	Service types.NamespacedName
	// Namespace is that of Lighthouse's broker.
	Namespace string
	// Clusters are the Seamark clusters that the bridge writes for, in the order of their ids.
	Clusters []string
	// Held are those whose contribution stays as it is, although it is missing on Seamark's broker.
	Held map[string]bool
	// Records and Slices are all clusters' on Seamark's broker, as far as they are admitted.
	Records []*v1alpha1.ExportRecord
	Slices  []*discoveryv1.EndpointSlice
	// Have is what Lighthouse's broker has.
	Have State
	// Owned reports whether an object of one cluster on Lighthouse's broker is the bridge's.
	Owned func(metav1.Object) bool
}

// LighthousePlan is what the bridge has to write on Lighthouse's broker.
type LighthousePlan struct {
	// Imports and Slices are the writes of objects of single clusters.
	Imports, Slices apply.Changes
	// Aggregate is what the bridge has to write of the object of all clusters.
	Aggregate AggregatePlan
	// Skipped are the Seamark clusters that export the service, and why it is not bridged.
	Skipped map[string]string
}

// Empty reports whether there is nothing to write.
func (p LighthousePlan) Empty() bool {
	return p.Imports.Empty() && p.Slices.Empty() && p.Aggregate.Empty()
}

// sliceWrites returns the writes of slices: those before the aggregate is written, and those after
// it, in two steps. When a service is withdrawn, endpoints go before the aggregate. Slices that
// replace others, such as those of an agent of Lighthouse that has ended, are there before the
// others go.
func (p LighthousePlan) sliceWrites() (before, after, last apply.Changes) {
	deletions := apply.Changes{Delete: p.Slices.Delete}
	if len(p.Slices.Create)+len(p.Slices.Update) == 0 {
		return deletions, apply.Changes{}, apply.Changes{}
	}
	return apply.Changes{}, apply.Changes{Create: p.Slices.Create, Update: p.Slices.Update}, deletions
}

// contribution is what Lighthouse's broker should have of one cluster's service.
type contribution struct {
	cluster string
	imports *mcsv1alpha1.ServiceImport
	slices  []*discoveryv1.EndpointSlice
	// takesPart is false if another type of service runs among Seamark's clusters: Lighthouse's
	// agents then report the conflict, and use no endpoints of the cluster.
	takesPart bool
}

// DecideLighthouse returns the writes that make Lighthouse's broker have what its agents of the
// Seamark clusters would write.
func DecideLighthouse(in LighthouseInput) LighthousePlan {
	plan := LighthousePlan{Skipped: map[string]string{}}
	merged := merge.Merge(in.Records)
	var want []contribution
	for _, cluster := range in.Clusters {
		c, why := in.contribution(cluster, merged)
		if why != "" {
			plan.Skipped[cluster] = why
		}
		if c != nil {
			want = append(want, *c)
		}
	}
	if other, collides := in.collides(); collides {
		for _, c := range want {
			plan.Skipped[c.cluster] = fmt.Sprintf("Lighthouse's broker has no room for it: its aggregate %s is that of service %s",
				aggregateName(in.Service), other)
		}
		want = nil
	}
	agg := in.decideAggregate(want)
	plan.Aggregate = agg
	var slicesWanted []*discoveryv1.EndpointSlice
	for i := range want {
		if want[i].takesPart && want[i].imports.Spec.Type == agg.kind {
			slicesWanted = append(slicesWanted, want[i].slices...)
		}
	}
	in.diffImports(&plan.Imports, want)
	in.diffSlices(&plan.Slices, slicesWanted)
	return plan
}

// collides returns the service that the aggregate belongs to, if it is another one.
func (in LighthouseInput) collides() (types.NamespacedName, bool) {
	if in.Have.Aggregate == nil {
		return types.NamespacedName{}, false
	}
	other, ok := lighthouseService(in.Have.Aggregate)
	return other, ok && other != in.Service
}

// contribution returns what a cluster contributes, nil if it is nothing, and why a service that it
// exports is not bridged.
func (in LighthouseInput) contribution(cluster string, merged merge.Result) (c *contribution, why string) {
	if in.Held[cluster] {
		if si := in.Have.importOf(cluster); si != nil {
			return &contribution{cluster: cluster, imports: si, slices: in.Have.slicesOf(cluster), takesPart: true}, ""
		}
		return nil, ""
	}
	i := slices.IndexFunc(in.Records, func(r *v1alpha1.ExportRecord) bool { return string(r.Spec.ClusterID) == cluster })
	if i < 0 {
		return nil, ""
	}
	record := in.Records[i]
	if record.Spec.Type == mcsv1beta1.ClusterSetIP && merged.Mode == merge.ModeClusterSetIP {
		return nil, "it has a clusterset IP, which clusters with Lighthouse cannot reach: export it without one " +
			"(" + v1alpha1.AnnotationUseClusterSetIP + ": \"false\")"
	}
	var sources []*discoveryv1.EndpointSlice
	for _, s := range in.Slices {
		if s.Labels[mcsv1beta1.LabelSourceCluster] == cluster {
			sources = append(sources, s)
		}
	}
	slices.SortFunc(sources, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	_, leftOut := merged.LeftOut[cluster]
	out := &contribution{cluster: cluster, imports: in.importFor(record, sources), takesPart: !leftOut}
	for _, s := range sources {
		out.slices = append(out.slices, in.sliceFor(record, s))
	}
	return out, ""
}

// importFor returns the ServiceImport that Lighthouse's agent of a cluster would write for a
// record.
func (in LighthouseInput) importFor(record *v1alpha1.ExportRecord, sources []*discoveryv1.EndpointSlice) *mcsv1alpha1.ServiceImport {
	cluster, spec := string(record.Spec.ClusterID), &record.Spec
	si := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace, Name: objectName(in.Service, cluster), GenerateName: in.Service.Name + "-",
			Labels: map[string]string{
				mcsv1alpha1.LabelServiceName: in.Service.Name, labelSourceNamespace: in.Service.Namespace, mcsv1alpha1.LabelSourceCluster: cluster,
			},
			Annotations: map[string]string{
				objects.AnnotationBridge: "true", annotationPublishNotReady: "false", annotationUseClusterSetIP: "false",
				annotationTimestamp: strconv.FormatInt(spec.ExportedAt.UTC().UnixNano(), 10),
			},
		},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type: mcsv1alpha1.ServiceImportType(spec.Type), Ports: []mcsv1alpha1.ServicePort{}, IPFamilies: spec.IPFamilies,
			SessionAffinity: spec.SessionAffinity, SessionAffinityConfig: spec.SessionAffinityConfig,
			TrafficDistribution: spec.TrafficDistribution, InternalTrafficPolicy: spec.InternalTrafficPolicy,
		},
	}
	if spec.Type == mcsv1beta1.Headless {
		return si
	}
	si.Spec.IPs = clusterIPs(spec.IPFamilies, sources)
	for _, p := range spec.Ports {
		si.Spec.Ports = append(si.Spec.Ports, mcsv1alpha1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return si
}

// clusterIPs returns the ClusterIPs of a Service from the slices that its cluster publishes in
// classic mode, in the order of its families.
func clusterIPs(families []corev1.IPFamily, sources []*discoveryv1.EndpointSlice) []string {
	var out []string
	for _, family := range families {
		for _, s := range sources {
			if s.AddressType == discoveryv1.AddressType(family) && len(s.Endpoints) > 0 {
				out = append(out, s.Endpoints[0].Addresses...)
				break
			}
		}
	}
	return out
}

// sliceFor returns the slice that Lighthouse's agent of a cluster would write for one that Seamark
// has. In classic mode both hold the ClusterIP.
func (in LighthouseInput) sliceFor(record *v1alpha1.ExportRecord, source *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	cluster, headless := string(record.Spec.ClusterID), record.Spec.Type == mcsv1beta1.Headless
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace, Name: objectName(in.Service, cluster, source.Name), GenerateName: in.Service.Name + "-",
			Labels: map[string]string{
				discoveryv1.LabelManagedBy: managedByLighthouse, labelSourceNamespace: in.Service.Namespace,
				mcsv1alpha1.LabelSourceCluster: cluster, mcsv1alpha1.LabelServiceName: in.Service.Name,
				labelHeadless: strconv.FormatBool(headless), labelClusterID: cluster, labelOriginatingNamespace: in.Service.Namespace,
			},
			Annotations: map[string]string{objects.AnnotationBridge: "true", annotationPublishNotReady: "false", annotationGlobalnet: "false"},
		},
		AddressType: source.AddressType,
	}
	if source.AddressType == discoveryv1.AddressTypeIPv6 {
		out.GenerateName += "v6-"
	}
	for _, p := range source.Ports {
		if p.Port != nil { // Lighthouse's DNS server panics without a number, a name or a protocol
			out.Ports = append(out.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(ptr.Deref(p.Name, "")), Protocol: ptr.To(ptr.Deref(p.Protocol, corev1.ProtocolTCP)),
				Port: p.Port, AppProtocol: p.AppProtocol,
			})
		}
	}
	if headless {
		out.Labels[labelSourceName] = sourceName(out.Name)
		out.Endpoints = source.Endpoints
		return out
	}
	for i := range source.Endpoints {
		e := &source.Endpoints[i]
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ptr.Deref(e.Conditions.Ready, true))},
		})
	}
	return out
}

// sourceName returns the value of the label that names the source of a headless slice: the end of
// the slice's own name, which differs from slice to slice, as far as a label can hold it.
func sourceName(name string) string {
	return strings.TrimLeft(name[max(0, len(name)-validation.LabelValueMaxLength):], "-")
}

// diffImports adds the writes of the ServiceImports of single clusters. Objects of a cluster that
// the bridge no longer writes for are deleted if it wrote them.
func (in LighthouseInput) diffImports(c *apply.Changes, want []contribution) {
	wanted := map[string]*mcsv1alpha1.ServiceImport{}
	for _, w := range want {
		wanted[w.cluster] = w.imports
	}
	for _, have := range in.Have.Imports {
		si := wanted[sourceCluster(have)]
		switch {
		case !in.Owned(have):
			continue
		case si == nil:
			c.Delete = append(c.Delete, have)
			continue
		}
		delete(wanted, sourceCluster(have))
		if si != have && (!apply.SameMetadata(have, si) || !equality.Semantic.DeepEqual(&have.Spec, &si.Spec)) {
			updated := have.DeepCopy()
			updated.Labels, updated.Annotations, updated.Spec = si.Labels, si.Annotations, si.Spec
			c.Update = append(c.Update, updated)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(wanted)) {
		c.Create = append(c.Create, wanted[cluster])
	}
}

// diffSlices adds the writes of slices. Slices are matched by what they are for, so that those of
// an agent of Lighthouse that has ended are kept under their names.
func (in LighthouseInput) diffSlices(c *apply.Changes, want []*discoveryv1.EndpointSlice) {
	var have []*discoveryv1.EndpointSlice
	names := map[string]string{}
	for _, cluster := range slices.Sorted(maps.Keys(clustersOf(in.Have.Slices))) {
		for _, s := range in.Have.slicesOf(cluster) {
			if !in.Owned(s) {
				continue
			}
			have = append(have, s)
			if _, taken := names[purpose(s)]; !taken {
				names[purpose(s)] = s.Name
			}
		}
	}
	named := make([]*discoveryv1.EndpointSlice, 0, len(want))
	for _, s := range want {
		if name, exists := names[purpose(s)]; exists && name != s.Name {
			s = s.DeepCopy()
			s.Name = name
		}
		named = append(named, s)
	}
	apply.DiffSlices(c, have, named)
}

// purpose identifies a slice whatever its name: that of a ClusterIP by its family, others by their
// source.
func purpose(s *discoveryv1.EndpointSlice) string {
	key, err := json.Marshal([]string{sourceCluster(s), s.Labels[labelHeadless], string(s.AddressType), s.Labels[labelSourceName]})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(key)
}

func clustersOf(all []*discoveryv1.EndpointSlice) map[string]bool {
	out := map[string]bool{}
	for _, s := range all {
		out[sourceCluster(s)] = true
	}
	return out
}
