package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

const (
	// DefaultZone is the zone of the multicluster DNS specification.
	DefaultZone = v1alpha1.DefaultZone
	// AgentLease is the Lease in the agent's namespace by which its replicas elect a leader.
	AgentLease = "seamark-agent"
	// LivenessConfigMap is the ConfigMap in the agent's namespace in which the agent keeps which
	// members are stale, so that the next leader knows.
	LivenessConfigMap = "seamark-liveness"

	// Limits of the API server: names of most objects, names of Services, and values of labels.
	maxNameLength        = 253
	maxServiceNameLength = 63
	maxLabelValueLength  = 63
	// hashLength is the length of what shortHash returns.
	hashLength = 10

	derivedPrefix = "mcs-"
)

// MemberAccount returns the name of the ServiceAccount that a member uses on the broker. The
// admission policies take the member's id from it.
func MemberAccount(clusterID string) string {
	return "member." + clusterID
}

// AggregateName returns the name of the aggregated ServiceImport of a service. Dots separate the
// parts because neither may contain one: a-b in c and a in b-c must not collide.
func AggregateName(service types.NamespacedName) string {
	return service.Name + "." + service.Namespace
}

// RecordName returns the name of the ExportRecord of a service and cluster. It has at most
// 63+1+63+1+63 = 191 characters.
func RecordName(service types.NamespacedName, clusterID string) string {
	return AggregateName(service) + "." + clusterID
}

// SliceName returns the name on the broker of the copy of one EndpointSlice. It does not change
// while the source slice keeps its name, so a pod change rewrites one object. It has at most
// 191+1+10 = 202 characters and never needs shortening. The broker's policies accept no other form.
func SliceName(service types.NamespacedName, clusterID, sourceSlice string) string {
	return RecordName(service, clusterID) + "." + shortHash(sourceSlice)
}

// ImportedSliceName returns the name in an importing cluster of the copy of a broker slice. It has
// at most 63+1+63+1+10 = 138 characters.
func ImportedSliceName(service, clusterID, sourceSlice string) string {
	return service + "." + clusterID + "." + shortHash(sourceSlice)
}

// DerivedServiceName returns the name of the Service that makes an imported service reachable in a
// cluster. It is in the same namespace as the service it is derived from, so it needs another name.
// A long name is cut to what is left of 63 characters; the hash keeps it unique.
func DerivedServiceName(service string) string {
	const room = maxServiceNameLength - len(derivedPrefix) - 1 - hashLength
	return derivedPrefix + service[:min(len(service), room)] + "-" + shortHash(service)
}

// UnusedServiceName returns what slices that belong to no Service have as their
// kubernetes.io/service-name: imported ones, and those on the broker. No Service can have such a
// name, so no controller takes the slices for its own. Without the label they would not be
// ignored: CoreDNS makes the reverse name <host>.<label>.<namespace>.svc.cluster.local of every
// slice, and sends no reply at all if one of an address's names has an empty label.
//
// For slices of this cluster it is the Service's own name in upper case: DNS compares names
// without regard to case (RFC 4343), so the pods keep the one name that they have. For slices of
// others it is <cluster>.<service>, so that db-0 of another cluster does not get the name of db-0
// here. On the broker all slices are of others; its policies demand the dot.
func UnusedServiceName(service, source, thisCluster string) string {
	if upper := strings.ToUpper(service); source == thisCluster && upper != service {
		return upper
	}
	name := source + "." + service
	if len(name) <= maxLabelValueLength {
		return name
	}
	return strings.TrimRight(shortHash(name)+"."+service[:min(len(service), maxLabelValueLength-1-hashLength)], "-")
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:hashLength/2])
}
