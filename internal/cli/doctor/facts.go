// Package doctor checks clusters and their broker, and reports for each check whether it passed
// and, if not, how to repair what is wrong.
//
// It is pure: Examine judges Facts that the caller read. The checks are a table; each has a code
// under which docs/troubleshooting.md explains it.
package doctor

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Facts are everything that was read.
type Facts struct {
	Clusters []Cluster
	Broker   Broker
}

// Cluster is what was read of one cluster.
type Cluster struct {
	ID, Context string
	// Problem is why it cannot be read at all; then the rest is empty.
	Problem string
	// Major, Minor and Version are the version of its API server.
	Major, Minor int
	Version      string
	// ClockAhead is how far its clock is ahead of the reader's; nil when unknown.
	ClockAhead *time.Duration
	// Kinds are the CRDs that a member needs; KindsProblem is why they cannot be read.
	Kinds        []Kind
	KindsProblem string
	// Denied are the permissions that the checks need and the user lacks.
	Denied []string

	Member     bool
	ClusterSet string
	// MembershipProblem is why the credential for the broker cannot be used or read.
	MembershipProblem string
	// AskedBroker reports whether the broker was asked with this member's credential. BrokerProblem
	// is why it did not answer, BrokerDenied are the permissions that the member lacks there.
	AskedBroker   bool
	BrokerProblem string
	BrokerDenied  []string
	// Removed is when the cluster was removed from its clusterset; empty if that is not known.
	Removed string

	DataPlane v1alpha1.DataPlane
	// Agent, DNS, Proxy and Beacon are the workloads; nil where there is none. WorkloadsProblem is
	// why they cannot be read.
	Agent, DNS, Proxy, Beacon *explain.Workload
	WorkloadsProblem          string
	// Reachability is how its agent reaches other clusters; empty if the agent could not be asked.
	Reachability []objects.Reachability
	// Zone is the zone of the clusterset's names in this cluster.
	Zone string
	// DNSAddresses are those of the Service seamark-dns. Corefile is the cluster's own DNS
	// configuration, CorefileProblem is why it is not known.
	DNSAddresses    []string
	Corefile        string
	CorefileProblem string
	// Asked is the name that DNS was asked for, Answer its answer, and Expect the addresses of
	// which the answer should have one; empty when none are known.
	Asked  string
	Answer *explain.Answer
	Expect []string
	// Proxies is the state of the proxies, in words; ProxyErrors is how many transactions failed.
	// ProxyDamage are the nodes whose table another program had changed, with the difference;
	// ProxyCutOff are the nodes whose proxy cannot reach the API server.
	Proxies     string
	ProxyErrors int
	ProxyDamage []string
	ProxyCutOff []string
	// BadExports are exports with a condition that something is wrong, as namespace/name.
	BadExports []string
	// HeldImports are imports whose exporters' records the broker has lost, as namespace/name.
	HeldImports []string
	// Probes are the attempts to reach pods of other clusters; ProbeSkipped is why there were none.
	Probes       []Probe
	ProbeSkipped string
}

// zone returns the zone of the clusterset's names; the default where it is not known.
func (c *Cluster) zone() string { return cmp.Or(c.Zone, objects.DefaultZone) }

// Kind is a CRD with the versions that it serves and those of which one is needed.
type Kind struct {
	Name   string
	AnyOf  []string
	Served []string
	// Missing reports whether it is not installed.
	Missing bool
}

// Probe is an attempt to reach a pod of another cluster.
type Probe struct {
	Cluster, Address string
	Reached          bool
	Detail           string
}

// Broker is what was read of the broker.
type Broker struct {
	// Problem is why it cannot be read; then the rest is empty.
	Problem string
	Server  string
	// Namespace is that of the clusterset's objects.
	Namespace string
	// Kinds are the CRDs that a broker needs; KindsProblem is why they cannot be read: a member may
	// not.
	Kinds        []Kind
	KindsProblem string
	// FairnessMissing are the API priority and fairness objects that the broker lacks;
	// FairnessProblem is why they cannot be read: a member may not.
	FairnessMissing []string
	FairnessProblem string
	ClockAhead      *time.Duration
	Set             *v1alpha1.ClusterSet
	Members         []Member
	// Ignored are the services, as namespace/name, of which importers ignore a record, by the
	// member that published it: the broker's admin does not grant it.
	Ignored map[string][]string
	// Held are the services, as namespace/name, whose withdrawal a member holds, by that member.
	Held map[string][]string
	// Used are the clusterset IPs that services have.
	Used []netip.Addr
}

// Member is what the broker has of one member.
type Member struct {
	v1alpha1.Cluster
	Life explain.Life
	// Skew is how far its clock is ahead of the broker's, by its last heartbeat; nil when unknown.
	Skew *time.Duration
	// HasCopy reports whether a copy of the cluster says that it has the same id.
	HasCopy bool
	// Left reports whether the cluster left the clusterset.
	Left bool
}

func (b *Broker) member(id string) *Member {
	for i := range b.Members {
		if b.Members[i].Name == id {
			return &b.Members[i]
		}
	}
	return nil
}
