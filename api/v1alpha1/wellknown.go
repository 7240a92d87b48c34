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
	// AnnotationPrefer ("region" or "cluster") asks the data plane to keep traffic near. The oldest export's wish counts; the
	// local ServiceImport carries it for the data plane.
	AnnotationPrefer = "seamark.dev/prefer"
	// AnnotationWeight ("0" to "255") is this cluster's share of a classic service's answers, beside the other clusters'. The
	// cluster's slices carry it; without it the weight is 1, and 0 takes the cluster out while any other serves.
	AnnotationWeight = "seamark.dev/weight"
)

// Annotations Seamark puts on what it imports, for the DNS server and the data plane.
const (
	// AnnotationMode tells on a ServiceImport that clients reach it in classic mode (ModeClassic): through each cluster's own
	// ClusterIP.
	AnnotationMode = "seamark.dev/mode"
	// ModeClassic is the one value of AnnotationMode.
	ModeClassic = "classic"
	// AnnotationClusterSetIPs are, on a ServiceImport of a member, the addresses of its aggregate, separated by commas. With the data plane
	// that derives Services spec.ips has others; and when the broker loses the aggregate, this is where they are known from.
	AnnotationClusterSetIPs = "seamark.dev/clusterset-ips"
	// AnnotationRegion is the region of a slice's endpoints: an EndpointSlice has a field for the zone but none for the region.
	AnnotationRegion = "seamark.dev/region"
	// AnnotationNodeRegions is, on a slice, a JSON object from node to region for the nodes that are elsewhere.
	AnnotationNodeRegions = "seamark.dev/node-regions"
)

// AnnotationZone, on the Service seamark-dns, is the zone of the clusterset's names in that cluster.
// Commands read it from there; without it the zone is clusterset.local.
const AnnotationZone = "seamark.dev/zone"

// Annotations Seamark puts on the aggregated ServiceImport on the broker.
const (
	// AnnotationAllocatedBy names the cluster from whose block the clusterset IPs were taken.
	AnnotationAllocatedBy = "seamark.dev/clusterset-ip-allocated-by"
	// AnnotationMergeVersion is the version of the merge rules that wrote the aggregate. An agent never rewrites what a
	// newer version wrote.
	AnnotationMergeVersion = "seamark.dev/merge-version"
)

// DefaultZone is the zone of the multicluster DNS specification.
const DefaultZone = "clusterset.local"
