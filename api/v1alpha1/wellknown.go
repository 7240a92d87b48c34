package v1alpha1

// Labels on every object Seamark writes to the broker, beside the two labels of the MCS API
// (multicluster.kubernetes.io/service-name and multicluster.kubernetes.io/source-cluster).
const (
	// LabelServiceNamespace is the namespace of the service that a broker object belongs to. The broker keeps all
	// namespaces' services in one namespace, so an object's own namespace does not tell.
	LabelServiceNamespace = "seamark.dev/service-namespace"
	// LabelWrittenBy is the cluster that last wrote an aggregated ServiceImport. The API server of the broker finds the
	// writer's grants by it; who only differs in it from what should be there has nothing to write.
	LabelWrittenBy = "seamark.dev/written-by"
	// LabelSchemaRevision, on a CustomResourceDefinition, says that it is ours and how new. Raised with every change of a
	// schema; an installer never replaces a higher one.
	LabelSchemaRevision = "seamark.dev/schema-revision"
)

// Annotations people put on a ServiceExport.
const (
	// AnnotationUseClusterSetIP ("true" or "false") asks for a clusterset IP, or for classic mode, for one service.
	AnnotationUseClusterSetIP = "seamark.dev/use-clusterset-ip"
	// AnnotationUseClusterSetIPAlias is the same in manifests written for Submariner Lighthouse. Seamark's own name wins
	// where both are set.
	AnnotationUseClusterSetIPAlias = "lighthouse.submariner.io/use-clusterset-ip"
	// AnnotationPrefer ("region" or "cluster") asks the data plane to keep traffic near.
	AnnotationPrefer = "seamark.dev/prefer"
)

// Annotations Seamark puts on the aggregated ServiceImport on the broker.
const (
	// AnnotationAllocatedBy names the cluster from whose block the clusterset IPs were taken.
	AnnotationAllocatedBy = "seamark.dev/clusterset-ip-allocated-by"
	// AnnotationMergeVersion is the version of the merge rules that wrote the aggregate. An agent never rewrites what a
	// newer version wrote.
	AnnotationMergeVersion = "seamark.dev/merge-version"
)
