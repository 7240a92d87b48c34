// Package ruleset computes the elements of the data plane's sets and maps, and the changes of a
// transaction. It accesses neither the kernel nor an API server.
//
// The rules never change: a service consists of elements only. Package kernel shows a packet's path
// through them. So a change of one service costs that service's elements, whatever the number of
// services.
package ruleset

import (
	"fmt"
	"net/netip"
)

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols a service port can have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the protocol's name as in Kubernetes.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// Frontend is what a client connects to.
type Frontend struct {
	VIP      netip.Addr
	Protocol Protocol
	Port     uint16
}

// String returns a frontend as address:port/protocol.
func (f Frontend) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.VIP, f.Port), f.Protocol)
}

// Port is one port of a service on one of its addresses, with the endpoints that this node uses.
type Port struct {
	Frontend
	// Endpoints are of the frontend's family, each once. If there are none, connections are
	// rejected.
	Endpoints []netip.AddrPort
	// Draining are other endpoints that still serve: they keep their flows and get no new ones.
	Draining []netip.AddrPort
	// Affinity is for how many seconds after its last connection a client keeps its endpoint; zero
	// means no affinity.
	Affinity uint32
	// Silent drops connections instead of rejecting them while there are no endpoints: the service
	// has some, but none that this node may use.
	Silent bool
}

// Service is what this node programs for one service.
type Service struct {
	// VIPs are the service's addresses. Connections to other ports of them are rejected.
	VIPs  []netip.Addr
	Ports []Port
	// Hairpin are the addresses that may connect to themselves through a VIP: those of this node's
	// endpoints.
	Hairpin []netip.Addr
}
