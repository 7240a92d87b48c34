package objects

import "time"

// WaitingPath is where a seamark-agent serves, on its metrics port, why a service is not up to
// date. The query parameter ServiceParameter names the service as namespace/name.
const (
	WaitingPath      = "/waiting"
	ServiceParameter = "service"
)

// WaitReason is why a reconciler has not written what a service needs.
type WaitReason string

// Reasons to wait. They are also the values of a metric's label, so there are few of them.
const (
	// WaitForCache: the watch has not shown the agent's own last write yet.
	WaitForCache WaitReason = "cache-behind"
	// WaitForBroker: the broker has not been reached since the agent started.
	WaitForBroker WaitReason = "broker-not-reached"
	// WaitForClusterID: another cluster uses this cluster's id.
	WaitForClusterID WaitReason = "cluster-id-taken"
	// WaitForBurst: the write is deferred while writes that clients wait for are under way.
	WaitForBurst WaitReason = "deferred"
	// WaitForNamespace: the namespace does not exist in this cluster, or is being deleted.
	WaitForNamespace WaitReason = "namespace-missing"
	// WaitForPermission: services of a system namespace are imported only if the broker's admin
	// allows the namespace.
	WaitForPermission WaitReason = "namespace-reserved"
	// WaitForRecords: records disappeared while the watch was interrupted; their exporters are
	// given time to publish them again.
	WaitForRecords WaitReason = "records-lost"
	// WaitForEndpoints: a new service's slices have not arrived; they are written at the same time as
	// its record.
	WaitForEndpoints WaitReason = "endpoints-to-come"
	// WaitForDeletion: the object that is in the way is being deleted.
	WaitForDeletion WaitReason = "being-deleted"
	// WaitForOther: another member with precedence is expected to write the aggregate.
	WaitForOther WaitReason = "another-member-writes"
	// WaitForConflict: another client changed the object at the same time.
	WaitForConflict WaitReason = "write-conflict"
	// WaitForService: the Service of an export was deleted a moment ago and may be replaced.
	WaitForService WaitReason = "service-being-replaced"
	// WaitForIntent: most services of a cluster are gone, and nothing shows that this is meant.
	WaitForIntent WaitReason = "withdrawal-held"
	// WaitForMigration: the cluster moves from Submariner Lighthouse, whose agent writes the
	// ServiceImport until the move is finished.
	WaitForMigration WaitReason = "left-to-lighthouse"
)

// WithdrawalHold is how long the withdrawal of services is held when most services of a cluster
// disappear and nothing shows that this is meant. A person who is alerted has time to look.
const WithdrawalHold = 10 * time.Minute

// Waiting is the state of a reconciler that waits.
type Waiting struct {
	// Reconciler is export, import or aggregate.
	Reconciler string     `json:"reconciler"`
	Reason     WaitReason `json:"reason"`
	Since      time.Time  `json:"since"`
}

// NotConnectedReason returns what a reconciler waits for while its member is not connected. taken
// is the error about the cluster's id, nil if the id is not known to be used by another cluster.
func NotConnectedReason(taken error) WaitReason {
	if taken != nil {
		return WaitForClusterID
	}
	return WaitForBroker
}
