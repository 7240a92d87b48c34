package v1alpha1

// Labels on every object Seamark writes to the broker, beside the two labels of the MCS API
// (multicluster.kubernetes.io/service-name and multicluster.kubernetes.io/source-cluster).
const (
	// LabelServiceNamespace is the namespace of the service that a broker object belongs to. All
	// objects of a broker are in one namespace, so an object's own namespace is another.
	LabelServiceNamespace = "seamark.dev/service-namespace"
	// LabelWrittenBy is the cluster that last wrote an aggregated ServiceImport. Admission on the
	// broker finds the writer's grants by it. A difference in this label alone is not worth a
	// write.
	LabelWrittenBy = "seamark.dev/written-by"
	// LabelClaimIPv4 and LabelClaimIPv6, on an ExportRecord, are the parts of the ranges of clusterset
	// IPs that it claims addresses from, such as 243.0 and fd00-243-0-0-0-0-1. The first is empty if
	// it claims no IPv4 address. Members find by them who uses addresses of their blocks.
	LabelClaimIPv4 = "seamark.dev/claim-ipv4"
	LabelClaimIPv6 = "seamark.dev/claim-ipv6"
	// LabelSchemaRevision, on a CRD, marks it as Seamark's and holds the revision of its schema.
	// Every change of the schema raises it. An installer never replaces a CRD of a higher
	// revision.
	LabelSchemaRevision = "seamark.dev/schema-revision"
)

// PropertyClusterSetIPRanges is the ClusterProperty with which a member's agent publishes the
// clusterset's ranges of clusterset IPs, separated by commas, for the data plane of its nodes.
const PropertyClusterSetIPRanges = "clusterset-ip-ranges.seamark.dev"

// PropertyUnreachableClusters is the ClusterProperty with which a member's agent publishes the
// clusters that cannot be reached from this one, for its DNS server and the data plane of its
// nodes. It exists while there are any.
const PropertyUnreachableClusters = "unreachable-clusters.seamark.dev"

// PropertyMigration is the ClusterProperty that exists while a cluster moves from Submariner
// Lighthouse to Seamark. Its value is a MigrationPhase. `seamark migrate lighthouse` writes it.
const PropertyMigration = "migration.seamark.dev"

// MigrationPhase is how far a cluster has moved from Submariner Lighthouse.
type MigrationPhase string

const (
	// MigrationShadow means that the cluster's DNS uses Lighthouse. The agent publishes exports and
	// imports EndpointSlices. It creates no ServiceImports.
	MigrationShadow MigrationPhase = "shadow"
	// MigrationSwitched means that the cluster's DNS uses Seamark. The agent also creates
	// ServiceImports of services that Lighthouse does not have.
	MigrationSwitched MigrationPhase = "switched"
	// MigrationStopping means that Lighthouse's agent is being stopped.
	MigrationStopping MigrationPhase = "stopping"
	// MigrationAdopting means that Lighthouse's agent has stopped, and Seamark's takes over its
	// ServiceImports.
	MigrationAdopting MigrationPhase = "adopting"
	// MigrationFinished means that Seamark does all work.
	MigrationFinished MigrationPhase = "finished"
	// MigrationReturning means that Lighthouse's agent is being started again.
	MigrationReturning MigrationPhase = "returning"
)

// LeavesObjects reports whether the agent leaves ServiceImports that it does not manage, and the
// status of ServiceExports, to the agent of Lighthouse. Two writers would undo their changes.
func (p MigrationPhase) LeavesObjects() bool {
	switch p {
	case MigrationShadow, MigrationSwitched, MigrationStopping, MigrationReturning:
		return true
	case MigrationAdopting, MigrationFinished:
	}
	return false
}

// ManagedByLighthouse is the value of the label endpointslice.kubernetes.io/managed-by of slices
// that agents of Submariner Lighthouse write.
const ManagedByLighthouse = "lighthouse-agent.submariner.io"

// LabelClusterSetIP on an imported EndpointSlice marks endpoints that clients reach through a
// clusterset IP. No DNS answer contains them, so seamark-dns does not read such slices.
const LabelClusterSetIP = "seamark.dev/clusterset-ip"

// Annotations that users put on a ServiceExport.
const (
	// AnnotationUseClusterSetIP ("true" or "false") requests a clusterset IP or classic mode for
	// one service.
	AnnotationUseClusterSetIP = "seamark.dev/use-clusterset-ip"
	// AnnotationUseClusterSetIPAlias is the same in manifests for Submariner Lighthouse. If both
	// are set, AnnotationUseClusterSetIP applies.
	AnnotationUseClusterSetIPAlias = "lighthouse.submariner.io/use-clusterset-ip"
	// AnnotationPrefer ("region" or "cluster") makes the data plane prefer near endpoints. The
	// value of the oldest export applies. The ServiceImport in each member carries it for the data
	// plane.
	AnnotationPrefer = "seamark.dev/prefer"
	// AnnotationWeight ("0" to "255") is the weight of this cluster in the DNS answers of a
	// service in classic mode. The cluster's slices carry it. Without it the weight is 1. With 0
	// the cluster is left out while another cluster serves.
	AnnotationWeight = "seamark.dev/weight"
)

// Values of AnnotationPrefer, and the length of the longest that a record can have.
const (
	PreferRegion    = "region"
	PreferCluster   = "cluster"
	MaxPreferLength = 63
)

// Annotations that Seamark puts on imported objects, for the DNS server and the data plane.
const (
	// AnnotationMode is ModeClassic on a ServiceImport that clients reach in classic mode: through
	// each cluster's own ClusterIP.
	AnnotationMode = "seamark.dev/mode"
	// ModeClassic is the only value of AnnotationMode.
	ModeClassic = "classic"
	// AnnotationClusterSetIPs are, on a ServiceImport of a member, the clusterset IPs of the
	// service, separated by commas. With a data plane that derives Services, spec.ips are the
	// derived Service's. If the broker loses the records, exporters claim the clusterset IPs of
	// this annotation again.
	AnnotationClusterSetIPs = "seamark.dev/clusterset-ips"
	// AnnotationExportedKeys are, on a ServiceImport of a member and on its derived Service, the
	// keys of the exported labels, then after a semicolon those of the exported annotations,
	// separated by commas. The agent removes a key of this list when its export ends, and leaves
	// others alone.
	AnnotationExportedKeys = "seamark.dev/exported-keys"
	// AnnotationRegion is the region of a slice's endpoints: an EndpointSlice has a field for the
	// zone but none for the region.
	AnnotationRegion = "seamark.dev/region"
	// AnnotationNodeRegions is, on a slice, a JSON object from node to region, for nodes that are
	// in another region than AnnotationRegion.
	AnnotationNodeRegions = "seamark.dev/node-regions"
)

// AnnotationNamedSlices on the ClusterSet tells agents that the broker's policies accept the
// label kubernetes.io/service-name on slices, if its value contains a dot. Those of earlier
// versions do not.
const AnnotationNamedSlices = "seamark.dev/named-slices"

// AnnotationZone on the Service seamark-dns, is the zone of the clusterset's names in that
// cluster. Commands read it from there; without it the zone is clusterset.local.
const AnnotationZone = "seamark.dev/zone"

// Annotations that Seamark puts on the aggregated ServiceImport on the broker.
const (
	// AnnotationAllocatedBy is the cluster from whose block the clusterset IPs were allocated.
	// AnnotationAllocatedByAlias is its name in Submariner Lighthouse. The aggregate also has
	// AnnotationUseClusterSetIP and its alias, with what holds for the service.
	AnnotationAllocatedBy      = "seamark.dev/clusterset-ip-allocated-by"
	AnnotationAllocatedByAlias = "lighthouse.submariner.io/clusterset-ip-allocated-by"
	// AnnotationMergeVersion is the version of the merge rules that produced the aggregate. An
	// agent does not rewrite an aggregate of a newer version that an exporter of the service has.
	AnnotationMergeVersion = "seamark.dev/merge-version"
)

// AnnotationWithdrawalHeld is, on an ExportRecord, since when its cluster holds the withdrawal of
// the service (RFC 3339): most of what it exported is gone, and its agent saw no user delete it.
const AnnotationWithdrawalHeld = "seamark.dev/withdrawal-held-since"

// Annotations on a member's Lease on the broker.
const (
	// AnnotationNonce identifies the process that is the leader of the agents of the cluster that
	// renews the lease. Clusters restored from one backup share id and uid, and so the lease.
	AnnotationNonce = "seamark.dev/nonce"
	// AnnotationDuplicate is the nonce of a copy of that cluster, and when the copy wrote it. The
	// copy publishes nothing, and repeats this every minute.
	AnnotationDuplicate = "seamark.dev/duplicate"
)

// Annotations about the end of a membership.
const (
	// AnnotationRemovedAt, on a member's Lease on the broker, is when the cluster left or the admin
	// removed it (RFC 3339). Such a Lease is not renewed, and no member counts it. On the
	// membership Secret of a cluster it means that its agent has found that Lease and withdrew.
	AnnotationRemovedAt = "seamark.dev/removed-at"
	// AnnotationLeaving, on the objects that make a cluster a member (clusterset.k8s.io), lets them
	// be deleted. Admission refuses to delete them without it.
	AnnotationLeaving = "seamark.dev/leaving"
)

// DefaultZone is the zone of the multicluster DNS specification.
const DefaultZone = "clusterset.local"
