// Package ruleset decides which elements the sets and maps of the data plane hold, and what a transaction has to change
// to get there. It knows no kernel and no API server.
//
// The rules themselves never change: a service is nothing but elements (see package kernel for the packet's way through
// them). So a change of one service costs that service's elements, whatever the number of services.
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

// String is the protocol's name as Kubernetes spells it.
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

// String names a frontend for people.
func (f Frontend) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.VIP, f.Port), f.Protocol)
}

// Port is one port of a service on one of its addresses, with the endpoints this node sends its clients to.
type Port struct {
	Frontend
	// Endpoints are of the frontend's family and named once each. With none, connections are refused.
	Endpoints []netip.AddrPort
	// Affinity is for how many seconds after its last connection a client comes back to its endpoint; zero for no affinity.
	Affinity uint32
	// Silent drops instead of refusing while there are no endpoints: the service has some, but this node may not use them.
	Silent bool
}

// Service is what this node programs for one service.
type Service struct {
	// VIPs are the service's addresses. Whatever arrives for one of them and is no known port is refused.
	VIPs  []netip.Addr
	Ports []Port
	// Hairpin are the addresses that may reach themselves through a VIP: those of this node's endpoints.
	Hairpin []netip.Addr
}
