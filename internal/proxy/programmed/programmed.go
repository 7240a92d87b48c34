// Package programmed describes how a seamark-proxy reports what it has programmed into its node's
// kernel for one service. The proxy and the command line share it.
package programmed

// Path is the path of the report, on the port of the metrics. The service, as namespace/name, is
// the query's value of ServiceParameter.
const (
	Path             = "/programmed"
	ServiceParameter = "service"
)

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
}

// Port is a port of a VIP.
type Port struct {
	// Address is VIP and port; Protocol is TCP, UDP or SCTP.
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
	// Endpoints are the targets of new connections; if there are none, connections are refused.
	Endpoints []string `json:"endpoints"`
}
