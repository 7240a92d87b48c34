// Package migrate moves a cluster from Submariner Lighthouse to Seamark without a gap in its
// names, and back. docs/migrating-from-lighthouse.md is for operators; docs/decisions/0024 has
// the reasons.
//
// Read gathers Facts about a cluster, Check and Decide turn them into findings and the next Action
// without I/O, and Act carries an action out. Every action is idempotent and its effect is visible
// in the Facts, so a command that is killed at any point is continued by running it again: nothing
// but the phase is remembered, in a ClusterProperty of the cluster.
package migrate

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/crds"
)

// The names that Submariner gives.
const (
	// AgentDeployment is the agent of Lighthouse. Its ServiceAccount has the same name.
	AgentDeployment = "submariner-lighthouse-agent"
	// OperatorDeployment is Submariner's operator.
	OperatorDeployment = "submariner-operator"
	submarinerName     = "submariner"
	discoveryName      = "service-discovery"

	labelSourceNamespace = "lighthouse.submariner.io/sourceNamespace"
	// Labels and annotations of ServiceImports before Lighthouse 0.15.
	labelOldSourceName    = "lighthouse.submariner.io/sourceName"
	labelOldSourceCluster = "lighthouse.submariner.io/sourceCluster"
	annotationOldOrigin   = "origin-name"
)

// Version is the release of Submariner whose clusters can be moved.
const Version = "0.24"

// Facts are what is known about a cluster.
type Facts struct {
	// Phase is how far the cluster has moved, empty before start.
	Phase v1alpha1.MigrationPhase
	// Submariner is nil if the cluster has none.
	Submariner *Submariner
	// ClusterID is the id that the cluster has under the names of the MCS API, empty if it has none.
	ClusterID string
	// Member is nil if the cluster has not joined a clusterset of Seamark.
	Member *Member
	Kinds  []Kind
	// Services are those that Lighthouse or Seamark imports here.
	Services []Service
	// OldImports are ServiceImports in the form of Lighthouse before 0.15.
	OldImports []types.NamespacedName
	Exports    []Export
	// Contributions is how many ServiceImports say what this cluster contributes to Lighthouse's
	// services, in the namespace of Submariner's operator.
	Contributions int
	DNS           DNS
	// PreviousDNS is the ConfigMap to which the operator wrote the forward block before the switch,
	// empty if it edited the cluster's own.
	PreviousDNS ConfigMapRef
	// Guard is what the admission policy refuses Lighthouse's agent.
	Guard Guard
}

// Submariner is what its resources say.
type Submariner struct {
	Namespace string
	Version   string
	ClusterID string
	// GlobalCIDR is set if Globalnet is used.
	GlobalCIDR string
	// CustomDomains are zones that Lighthouse answers beside clusterset.local.
	CustomDomains []string
	// ClusterSetIPs reports whether exports have a clusterset IP unless they say otherwise.
	ClusterSetIPs bool
	// DiscoveryEnabled is what the Submariner resource asks for, DiscoveryExists whether its
	// ServiceDiscovery resource exists.
	DiscoveryEnabled, DiscoveryExists bool
	// CustomDNS is the ConfigMap to which the operator writes the forward block, empty if it edits the
	// cluster's own. Redirected reports whether it has written the block to the ConfigMap that no
	// server reads: from then on it does not change the cluster's own.
	CustomDNS  ConfigMapRef
	Redirected bool
	// OperatorRunning reports whether a pod of the operator is available.
	OperatorRunning bool
	// AgentExists reports whether Lighthouse's agent is deployed or has pods, AgentRunning whether one
	// is available. DNSRunning reports whether Lighthouse's DNS server is available.
	AgentExists, AgentRunning, DNSRunning bool
	// ManagedBy is the tool that would restore the Submariner resource, empty if none is known.
	ManagedBy string
	// Clusters are the ids of all clusters that are connected by Submariner.
	Clusters []string
	// Ranges are the pod and Service ranges of these clusters, by id.
	Ranges map[string][]netip.Prefix
}

// ConfigMapRef names a ConfigMap.
type ConfigMapRef struct{ Namespace, Name string }

// Member is the membership in a clusterset of Seamark.
type Member struct {
	ClusterID, ClusterSet string
	// AgentRunning and DNSRunning report whether the workloads are available.
	AgentRunning, DNSRunning bool
}

// Kind is a CRD that Seamark needs.
type Kind struct {
	Name string
	// Ready reports whether it is as Seamark needs it beside Submariner.
	Ready bool
	// Refused is why Seamark must not change it, empty if it may.
	Refused string
	// Stored are the versions in which objects may be stored, if Submariner's operator writes the CRD
	// too.
	Stored []string
}

// storesOther reports whether objects may be stored in a version that Submariner's operator would
// remove.
func (k Kind) storesOther() bool {
	return slices.ContainsFunc(k.Stored, func(v string) bool { return v != crds.OldestStored })
}

// Service is a service of both, as this cluster has it.
type Service struct {
	types.NamespacedName
	// Imported reports whether a ServiceImport exists, Managed whether Seamark manages it.
	Imported, Managed bool
	// IPs are its clusterset IPs, as far as Lighthouse gave them.
	IPs []string
	// Lighthouse and Seamark are the ready addresses by cluster.
	Lighthouse, Seamark map[string][]string
	// Headless services have pods as endpoints.
	Headless bool
}

// Export is a ServiceExport of this cluster.
type Export struct {
	types.NamespacedName
	// Conflict is the message of its condition Conflict, empty without a conflict.
	Conflict string
	// ServiceType is that of its Service, empty without one.
	ServiceType corev1.ServiceType
}

// DNS is which server the cluster's DNS forwards clusterset.local to.
type DNS struct {
	// Lighthouse and Seamark report whether its configuration has the block of each.
	Lighthouse, Seamark bool
	// Unsupported is why Seamark does not change it, empty if it does.
	Unsupported string
	// Changed is when its configuration was last changed, on the API server's clock; zero if that is
	// not known.
	Changed time.Time
}

// String returns whose server the cluster's DNS uses, for users.
func (d DNS) String() string {
	switch {
	case d.Unsupported != "":
		return "unknown: " + d.Unsupported
	case d.Lighthouse && d.Seamark:
		return "neither: it has the blocks of both, which CoreDNS does not load"
	case d.Lighthouse:
		return "Lighthouse"
	case d.Seamark:
		return "Seamark"
	}
	return "neither"
}

// Guard is what the admission policy refuses Lighthouse's agent.
type Guard string

const (
	// GuardNone means that there is no policy.
	GuardNone Guard = ""
	// GuardOwn refuses to delete ServiceImports that Seamark manages.
	GuardOwn Guard = "own"
	// GuardAll refuses to delete any ServiceImport: the agent's uninstall job would delete all.
	GuardAll Guard = "all"
	// guardPending means that the policies are those of GuardAll, but API servers may not apply them
	// yet.
	guardPending Guard = "pending"
)
