// Package status assesses a whole clusterset: its members, and the services that need attention.
//
// It is pure: Assess turns an Input into a Report, Write turns that into text. Package survey reads
// the Input.
package status

import (
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Report is the state of a clusterset.
type Report struct {
	ClusterSet string   `json:"clusterSet"`
	Broker     Broker   `json:"broker"`
	Clusters   []Member `json:"clusters"`
	// Reachability is which cluster reaches which, as far as their agents could be asked.
	Reachability []Path `json:"reachability"`
	// Services is how many are published; Attention are those that need attention.
	Services  int       `json:"services"`
	Attention []Service `json:"attention"`
}

// Broker is how the broker was read.
type Broker struct {
	Server string `json:"server,omitempty"`
	// Via names the credential that was used.
	Via string `json:"via,omitempty"`
	// Problem is why the broker could not be read.
	Problem string `json:"problem,omitempty"`
}

// MemberState is the state of a member by its lease on the broker.
type MemberState string

// States of members.
const (
	// Alive: its lease is valid.
	Alive MemberState = "alive"
	// Silent: its lease expired.
	Silent MemberState = "silent"
	// Invited: it never renewed its lease, so it has not joined.
	Invited MemberState = "invited"
	// Unknown: the broker was not read, or has no such member.
	Unknown MemberState = "unknown"
)

// Member is the state of one cluster.
type Member struct {
	ID            string      `json:"id"`
	State         MemberState `json:"state"`
	LastHeartbeat *time.Time  `json:"lastHeartbeat,omitempty"`
	AgentVersion  string      `json:"agentVersion,omitempty"`
	DataPlane     string      `json:"dataPlane,omitempty"`
	Exports       int         `json:"exports"`
	// Imports is nil for a cluster that was not read: the broker has no imports.
	Imports        *int     `json:"imports,omitempty"`
	Endpoints      int      `json:"endpoints"`
	ReadyEndpoints int      `json:"readyEndpoints"`
	Blocks         []string `json:"clusterSetIPBlocks"`
	Namespaces     []string `json:"allowedNamespaces"`
	Context        string   `json:"context,omitempty"`
	// Problem is why the cluster could not be read.
	Problem string `json:"problem,omitempty"`
}

// Path is how one cluster reaches another.
type Path struct {
	From string `json:"from"`
	objects.Reachability
}

// ServiceState is why a service needs attention.
type ServiceState string

// States of services that need attention, worst first.
const (
	Failing  ServiceState = "failing"
	Stale    ServiceState = "stale"
	Conflict ServiceState = "conflict"
)

// Service is a service that needs attention.
type Service struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	State     ServiceState `json:"state"`
	// Cluster is the cluster with the problem, or several; empty for the whole service.
	Cluster string `json:"cluster,omitempty"`
	Why     string `json:"why"`
}
