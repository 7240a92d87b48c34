// Package programmed is how a seamark-proxy tells what it has put into its node's kernel for one service. Both sides have it: the proxy that is
// asked, and the command line that asks.
package programmed

// Path is where a proxy is asked, beside its metrics; the service, as namespace/name, is the query's value of ServiceParameter.
const (
	Path             = "/programmed"
	ServiceParameter = "service"
)

// Service is what a node's kernel holds of a service.
type Service struct {
	// Node is the node that tells.
	Node string `json:"node"`
	// VIPs are the addresses that lead somewhere; none when the node does not know the service.
	VIPs []string `json:"vips,omitempty"`
	// Ports are the known ports of all VIPs.
	Ports []Port `json:"ports,omitempty"`
	// Refused says what of the service cannot be used, and why.
	Refused string `json:"refused,omitempty"`
}

// Port is a port of a VIP.
type Port struct {
	// Address is VIP and port; Protocol is TCP, UDP or SCTP.
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
	// Endpoints are where new connections go; none means that they are refused.
	Endpoints []string `json:"endpoints"`
}
