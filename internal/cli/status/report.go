// Package status assesses a whole clusterset: its members, and the services that need attention.
//
// It is pure: Assess turns an Input into a Report, Write turns that into text. Package survey reads
// the Input.
package status

import (
	"time"
)

// status is the clusterset at a glance.
type Report struct {
	ClusterSet string   `json:"clusterSet"`
	Broker     Broker   `json:"broker"`
	Clusters   []Member `json:"clusters"`
	// Services is how many there are; Attention those that need some.
	Services  int       `json:"services"`
	Attention []Service `json:"attention"`
}

type Broker struct {
	Server string `json:"server,omitempty"`
	Via    string `json:"via,omitempty"`
	// Problem is why the broker could not be asked.
	Problem string `json:"problem,omitempty"`
}

// Lives of a member.
const (
	Alive   = "alive"
	Silent  = "silent"
	Invited = "invited"
	Unknown = "unknown"
)

type Member struct {
	ID string `json:"id"`
	// State is alive, silent (its heartbeat stopped), invited (it never joined) or unknown (the broker was not asked).
	State         string     `json:"state"`
	LastHeartbeat *time.Time `json:"lastHeartbeat,omitempty"`
	AgentVersion  string     `json:"agentVersion,omitempty"`
	DataPlane     string     `json:"dataPlane,omitempty"`
	Exports       int        `json:"exports"`
	// Imports is nil for a cluster that was not looked into: the broker does not know.
	Imports        *int     `json:"imports,omitempty"`
	Endpoints      int      `json:"endpoints"`
	ReadyEndpoints int      `json:"readyEndpoints"`
	Blocks         []string `json:"clusterSetIPBlocks"`
	Namespaces     []string `json:"allowedNamespaces"`
	Context        string   `json:"context,omitempty"`
	// Problem is why the cluster could not be looked into.
	Problem string `json:"problem,omitempty"`
}

// States of services that need attention.
const (
	Failing  = "failing"
	Stale    = "stale"
	Conflict = "conflict"
)

type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is failing, stale or conflict.
	State string `json:"state"`
	// Cluster is where, when it is not the whole service.
	Cluster string `json:"cluster,omitempty"`
	Why     string `json:"why"`
}
