package bridge

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// AggregatePlan is what the bridge has to write of the aggregate of a service on Lighthouse's
// broker. Each of Lighthouse's agents lists its own cluster there, and the one with precedence
// writes the spec. The bridge does the same for the clusters that it writes for.
type AggregatePlan struct {
	// Create, Update and Delete are nil if there is nothing to do. Only one of them is set. The status
	// of Create is written after it.
	Create, Update, Delete *mcsv1alpha1.ServiceImport
	// Status has the list of clusters, if that must be written after Create or Update.
	Status []mcsv1alpha1.ClusterStatus

	// current is the aggregate as it was read.
	current *mcsv1alpha1.ServiceImport
	// kind is the type of the service, which the first exporter decides.
	kind mcsv1alpha1.ServiceImportType
}

// Empty reports whether there is nothing to write.
func (p AggregatePlan) Empty() bool {
	return p.Create == nil && p.Update == nil && p.Delete == nil && p.Status == nil
}

// decideAggregate returns what the bridge has to write of the aggregate, with what its clusters
// contribute.
func (in LighthouseInput) decideAggregate(want []contribution) AggregatePlan {
	have := in.Have.Aggregate
	if _, other := in.collides(); other || (have != nil && have.DeletionTimestamp != nil) {
		return AggregatePlan{}
	}
	imports := in.importsAfter(want)
	if have == nil {
		return in.createAggregate(want, imports)
	}
	plan := AggregatePlan{current: have, kind: have.Spec.Type}
	ours := map[string]bool{} // by cluster: whether it is to be listed
	for _, si := range in.Have.Imports {
		if in.Owned(si) {
			ours[sourceCluster(si)] = false
		}
	}
	for _, cluster := range in.Clusters {
		ours[cluster] = false
	}
	for _, w := range want {
		ours[w.cluster] = w.takesPart && w.imports.Spec.Type == have.Spec.Type
	}
	listed := list(have.Status.Clusters, ours, in.Clusters)
	if len(listed) == 0 && (len(have.Status.Clusters) > 0 || len(imports) == 0) {
		return AggregatePlan{Delete: have, kind: have.Spec.Type}
	}
	updated := have.DeepCopy()
	_, found := updated.Annotations[annotationUseClusterSetIP]
	if !found && slices.ContainsFunc(listed, isOneOf(ours)) {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, annotationUseClusterSetIP, "false")
	}
	in.setSpec(updated, want, imports)
	if !equality.Semantic.DeepEqual(&updated.Spec, &have.Spec) || !equality.Semantic.DeepEqual(updated.Annotations, have.Annotations) {
		plan.Update = updated
	}
	if !slices.Equal(listed, have.Status.Clusters) {
		plan.Status = listed
	}
	return plan
}

// createAggregate returns a new aggregate. The type is that of the oldest export.
func (in LighthouseInput) createAggregate(want []contribution, imports []*mcsv1alpha1.ServiceImport) AggregatePlan {
	var first *mcsv1alpha1.ServiceImport
	for _, si := range byPrecedence(imports, "") {
		if slices.ContainsFunc(want, func(w contribution) bool { return w.takesPart && w.imports == si }) {
			first = si
			break
		}
	}
	if first == nil {
		return AggregatePlan{}
	}
	si := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace, Name: aggregateName(in.Service),
			Annotations: map[string]string{
				mcsv1alpha1.LabelServiceName: in.Service.Name, labelSourceNamespace: in.Service.Namespace, annotationUseClusterSetIP: "false",
			},
		},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type: first.Spec.Type, Ports: []mcsv1alpha1.ServicePort{}, IPFamilies: first.Spec.IPFamilies,
		},
	}
	ours := map[string]bool{}
	for _, w := range want {
		ours[w.cluster] = w.takesPart && w.imports.Spec.Type == first.Spec.Type
	}
	in.setSpec(si, want, imports)
	return AggregatePlan{Create: si, Status: list(nil, ours, in.Clusters), kind: first.Spec.Type}
}

// importsAfter returns the ServiceImports of single clusters as they will be.
func (in LighthouseInput) importsAfter(want []contribution) []*mcsv1alpha1.ServiceImport {
	var out []*mcsv1alpha1.ServiceImport
	for _, si := range in.Have.Imports {
		if !in.Owned(si) {
			out = append(out, si)
		}
	}
	for _, w := range want {
		out = append(out, w.imports)
	}
	return out
}

// setSpec sets the spec as Lighthouse's agent of the cluster with precedence does, if that is one
// of the bridge's.
func (in LighthouseInput) setSpec(si *mcsv1alpha1.ServiceImport, want []contribution, imports []*mcsv1alpha1.ServiceImport) {
	sorted := byPrecedence(imports, si.Spec.Type)
	if len(sorted) == 0 || !slices.ContainsFunc(want, func(w contribution) bool { return w.imports == sorted[0] }) ||
		sorted[0].Spec.Type != si.Spec.Type {
		return
	}
	first := &sorted[0].Spec
	si.Spec.SessionAffinity, si.Spec.SessionAffinityConfig = first.SessionAffinity, first.SessionAffinityConfig
	si.Spec.TrafficDistribution, si.Spec.InternalTrafficPolicy = first.TrafficDistribution, first.InternalTrafficPolicy
	si.Spec.Ports, si.Spec.IPFamilies = slices.Clone(first.Ports), slices.Clone(first.IPFamilies)
	for _, other := range sorted[1:] {
		if other.Spec.Type != si.Spec.Type {
			continue
		}
		for _, p := range other.Spec.Ports {
			if !slices.ContainsFunc(si.Spec.Ports, func(q mcsv1alpha1.ServicePort) bool { return q.Name == p.Name }) {
				si.Spec.Ports = append(si.Spec.Ports, p)
			}
		}
		for _, f := range other.Spec.IPFamilies {
			if !slices.Contains(si.Spec.IPFamilies, f) {
				si.Spec.IPFamilies = append(si.Spec.IPFamilies, f)
			}
		}
	}
}

// list returns the clusters of an aggregate's status with those of the bridge added or removed.
func list(have []mcsv1alpha1.ClusterStatus, ours map[string]bool, clusters []string) []mcsv1alpha1.ClusterStatus {
	out := slices.DeleteFunc(slices.Clone(have), func(c mcsv1alpha1.ClusterStatus) bool {
		listed, own := ours[c.Cluster]
		return own && !listed
	})
	for _, id := range clusters {
		if ours[id] && !slices.Contains(out, mcsv1alpha1.ClusterStatus{Cluster: id}) {
			out = append(out, mcsv1alpha1.ClusterStatus{Cluster: id})
		}
	}
	return out
}

// isOneOf reports whether a cluster is one of the bridge's that are listed.
func isOneOf(ours map[string]bool) func(mcsv1alpha1.ClusterStatus) bool {
	return func(c mcsv1alpha1.ClusterStatus) bool { return ours[c.Cluster] }
}
