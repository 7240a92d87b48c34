// Package programmed describes how a seamark-proxy reports what its node's kernel holds. The proxy
// and the command line share it.
package programmed

import "time"

// Path is the path of the report, on the port of the metrics. With a service, as namespace/name, in
// the query's value of ServiceParameter, it is about that service; otherwise about the node.
const (
	Path             = "/programmed"
	ServiceParameter = "service"
)

// TokenHeader carries a bearer token through an API server's proxy, which removes the header
// Authorization. ReaderAccount is the ServiceAccount of the chart whose tokens may read the report
// and the metrics, and nothing else.
const (
	TokenHeader   = "Seamark-Token"
	ReaderAccount = "seamark-metrics"
)

// Node is what a node's kernel holds.
type Node struct {
	// Node is the reporting node.
	Node string `json:"node"`
	// Ports is how many service ports the kernel holds.
	Ports int `json:"ports"`
	// LastSync is when the kernel was last known to match the API server, FailedSyncs how many
	// transactions failed since the proxy started.
	LastSync    time.Time `json:"lastSync"`
	FailedSyncs int       `json:"failedSyncs"`
	// Damage is how the kernel's table differed from what the proxy wrote. The proxy restores it
	// after the report.
	Damage string `json:"damage,omitempty"`
	Refusal
}

// Refusal is the only content of an answer with the status 503.
type Refusal struct {
	// CutOff is why the proxy cannot ask its API server who may read the report.
	CutOff string `json:"cutOff,omitempty"`
}

// Service is what a node's kernel holds for a service.
type Service struct {
	// Node is the reporting node.
	Node string `json:"node"`
	// VIPs are the addresses with rules; there are none if the node does not know the service.
	VIPs []string `json:"vips,omitempty"`
	// Ports are the ports of all VIPs.
	Ports []Port `json:"ports,omitempty"`
	// Refused is what of the service cannot be used, and why.
	Refused string `json:"refused,omitempty"`
	// Damage is the node's; see Node.
	Damage string `json:"damage,omitempty"`
	Refusal
}

// Port is a port of a VIP.
type Port struct {
	// Address is VIP and port; Protocol is TCP, UDP or SCTP.
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
	// Endpoints are the targets of new connections; if there are none, connections are refused.
	Endpoints []string `json:"endpoints"`
}
