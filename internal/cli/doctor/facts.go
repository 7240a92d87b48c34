// Package doctor checks clusters and their broker, and says of each check whether it passed and, if not, how to mend it.
//
// It is pure: Examine judges Facts that somebody else read. The checks are a table; each has a code under which docs/troubleshooting.md
// explains it.
package doctor

import (
	"net/netip"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// Facts are all that was read.
type Facts struct {
	Clusters []Cluster
	Broker   Broker
}

// Cluster is what was read of one cluster.
type Cluster struct {
	ID, Context string
	// Problem is why it cannot be looked into at all; then the rest is empty.
	Problem string
	// Version is that of its API server.
	Major, Minor int
	Version      string
	// ClockAhead is how far its clock is ahead of the reader's; nil when unknown.
	ClockAhead *time.Duration
	// Kinds are the CustomResourceDefinitions a member needs; KindsProblem is why they cannot be read.
	Kinds        []Kind
	KindsProblem string
	// Denied is what the user who looks may not do, of what the checks need.
	Denied []string

	Member     bool
	ClusterSet string
	// MembershipProblem is why the credential for the broker cannot be used or seen.
	MembershipProblem string
	// BrokerProblem is why the broker does not answer this member; BrokerDenied what it does not let it do. AskedBroker tells that it was
	// asked at all.
	AskedBroker   bool
	BrokerProblem string
	BrokerDenied  []string

	DataPlane v1alpha1.DataPlane
	// Agent, DNS and Proxy are the workloads; nil where there is none. WorkloadsProblem is why they cannot be read.
	Agent, DNS, Proxy *explain.Workload
	WorkloadsProblem  string
	// Zone is the zone of the clusterset's names in this cluster.
	Zone string
	// DNSAddresses are those of the Service seamark-dns. Corefile is the cluster's own DNS configuration, CorefileProblem why it is not known.
	DNSAddresses    []string
	Corefile        string
	CorefileProblem string
	// Asked is the name that DNS was asked for, Answer what it said, Expect what it should have said if anything is known.
	Asked  string
	Answer *explain.Answer
	Expect []string
	// Proxies is what the proxies say, in words; ProxyErrors how many transactions failed.
	Proxies     string
	ProxyErrors float64
	// BadExports are exports that say something is wrong, as namespace/name.
	BadExports []string
	// Probes are the tries to reach pods of other clusters; ProbeSkipped says why there were none.
	Probes       []Probe
	ProbeSkipped string
}

// Kind is a CustomResourceDefinition and the versions of it that are needed (any one of them) and served.
type Kind struct {
	Name   string
	AnyOf  []string
	Served []string
	// Missing tells that there is none.
	Missing bool
}

// Probe is a try to reach a pod of another cluster.
type Probe struct {
	Cluster, Address string
	Reached          bool
	Detail           string
}

// Broker is what was read of the broker.
type Broker struct {
	// Problem is why it cannot be asked; then the rest is empty.
	Problem string
	Server  string
	// Kinds are those a broker needs; KindsProblem is why they cannot be read: a member may not.
	Kinds        []Kind
	KindsProblem string
	ClockAhead   *time.Duration
	Set          *v1alpha1.ClusterSet
	Members      []Member
	// Used are the clusterset IPs that services have.
	Used []netip.Addr
}

// Member is what the broker knows of one member.
type Member struct {
	v1alpha1.Cluster
	Life explain.Life
	// Skew is how far its clock is ahead of the broker's, by its last heartbeat; nil when unknown.
	Skew *time.Duration
}

func (b *Broker) member(id string) *Member {
	for i := range b.Members {
		if b.Members[i].Name == id {
			return &b.Members[i]
		}
	}
	return nil
}
