package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// All rules load the parts of their keys into the same 32-bit registers. Each key is a run of
// neighbouring registers, and the result of a lookup goes where the next key needs it. With w
// registers for an address:
//
//	0        w      2w          2w+1    2w+2     2w+3       3w+3
//	client   VIP    protocol    port    number   endpoint   its port
//
//	clients    0 … 2w+1         services                    w … 2w+1
//	                            endpoints, slots, members   w … 2w+2
//
// IPv6 uses all sixteen registers.
func (f *family) regClient() uint32       { return reg(0) }
func (f *family) regVIP() uint32          { return reg(f.width) }
func (f *family) regProtocol() uint32     { return reg(2 * f.width) }
func (f *family) regPort() uint32         { return reg(2*f.width + 1) }
func (f *family) regNumber() uint32       { return reg(2*f.width + 2) }
func (f *family) regEndpoint() uint32     { return reg(2*f.width + 3) }
func (f *family) regEndpointPort() uint32 { return reg(3*f.width + 3) }

func reg(i uint32) uint32 { return unix.NFT_REG32_00 + i }

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

const (
	dynsetAdd    = 0 // NFT_DYNSET_OP_ADD
	dynsetUpdate = 1 // NFT_DYNSET_OP_UPDATE
	dynsetDelete = 2 // NFT_DYNSET_OP_DELETE

	rejectICMPX         = 2      // NFT_REJECT_ICMPX_UNREACH
	rejectPort          = 1      // NFT_REJECT_ICMPX_PORT_UNREACH
	rejectTCPReset      = 1      // NFT_REJECT_TCP_RST
	statusDNAT          = 1 << 5 // IPS_DST_NAT
	interfaceNameLength = 16
)

// matchFamily ends a rule for packets of the other family, whose headers have other offsets.
func (f *family) matchFamily() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: []byte{f.proto}},
	}
}

func (f *family) loadAddress(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.addr.Bytes}
}

// loadFrontend loads the packet's destination.
func (f *family) loadFrontend() []expr.Any {
	return []expr.Any{
		f.loadAddress(f.daddr, f.regVIP()),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.regProtocol()},
		// TCP, UDP and SCTP have the destination port at the same offset.
		&expr.Payload{DestRegister: f.regPort(), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

func (f *family) lookupSet(kind ruleset.Kind, from uint32) expr.Any {
	return &expr.Lookup{SourceRegister: from, SetName: f.sets[kind].Name}
}

func (f *family) lookupMap(name string, from, to uint32) expr.Any {
	return &expr.Lookup{SourceRegister: from, SetName: name, DestRegister: to, IsDestRegSet: true}
}

// dispatch looks up the class of a service port and goes to its chain. It takes two lookups because
// the kernel validates all elements of a verdict map whenever one is added: that map has one
// element for each class, not for each service.
func (f *family) dispatch() []expr.Any {
	exprs := append(append(f.matchFamily(), f.loadFrontend()...), f.lookupMap(f.sets[ruleset.Services].Name, f.regVIP(), f.regNumber()))
	return append(append(exprs, f.copyThroughMark()...), f.lookupMap(f.classes.Name, f.regNumber(), unix.NFT_REG_VERDICT))
}

// copyThroughMark copies a number that a map returned through the packet's mark, which keeps its
// value. The kernel does not need that, but nft (1.0.6 and others) aborts in `nft list ruleset` if
// a rule uses the result of a lookup in another lookup.
func (f *family) copyThroughMark() []expr.Any {
	saved := f.regEndpointPort() // free until an endpoint is loaded
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: saved},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: f.regNumber(), SourceRegister: true},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: f.regNumber()},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: saved, SourceRegister: true},
	}
}

// pick sends the connection to one of the first count endpoints.
func (f *family) pick(count uint32) []expr.Any {
	return append(f.loadFrontend(), f.randomIndex(count), f.lookupMap(f.sets[ruleset.Endpoints].Name, f.regVIP(), f.regEndpoint()), f.dnat())
}

func (f *family) randomIndex(count uint32) expr.Any {
	return &expr.Numgen{Register: f.regNumber(), Modulus: count, Type: unix.NFT_NG_RANDOM}
}

func (f *family) dnat() expr.Any {
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: f.regEndpoint(), RegProtoMin: f.regEndpointPort(),
		Specified: true}
}

// loadClientNumber loads the number of the endpoint that a client used last.
func (f *family) loadClientNumber() []expr.Any {
	return append(append(f.loadClientKey(), f.lookupMap(f.clients.Name, f.regClient(), f.regNumber())), f.copyThroughMark()...)
}

func (f *family) loadClientKey() []expr.Any {
	return append([]expr.Any{f.loadAddress(f.saddr, f.regClient())}, f.loadFrontend()...)
}

// loadMember loads the endpoint with a number. The rule ends there if the endpoint was removed.
func (f *family) loadMember() expr.Any {
	return f.lookupMap(f.sets[ruleset.Members].Name, f.regVIP(), f.regEndpoint())
}

func (f *family) updateClient(operation uint32, timeout uint32) expr.Any {
	return &expr.Dynset{
		SrcRegKey: f.regClient(), SrcRegData: f.regNumber(), SetName: f.clients.Name,
		Operation: operation, Timeout: time.Duration(timeout) * time.Second,
	}
}

// sendRememberedClient sends a known client to its endpoint if that still exists, and restarts the
// timeout.
func (f *family) sendRememberedClient(timeout uint32) []expr.Any {
	return append(f.loadClientNumber(), f.loadMember(), f.updateClient(dynsetUpdate, timeout), f.dnat())
}

// deleteStaleClient deletes a client whose endpoint was removed, because adding an existing element
// has no effect.
func (f *family) deleteStaleClient() []expr.Any {
	return append(f.loadClientNumber(), f.updateClient(dynsetDelete, 0))
}

// pickAndRemember sends a new client to one of the endpoints. If the map is full, the rule ends
// there and the next one picks.
func (f *family) pickAndRemember(count, timeout uint32) []expr.Any {
	exprs := append(f.loadClientKey(), f.randomIndex(count), f.lookupMap(f.sets[ruleset.Slots].Name, f.regVIP(), f.regNumber()))
	return append(append(exprs, f.copyThroughMark()...), f.loadMember(), f.updateClient(dynsetAdd, timeout), f.dnat())
}

// Masquerade selects the connections whose source becomes the node's address on the interface that
// the packets leave through. A connection from an endpoint to itself is always among them.
type Masquerade string

// The policies for masquerading.
const (
	// MasqueradeNone keeps the source of every client.
	MasqueradeNone Masquerade = "none"
	// MasqueradeHost changes the source of the node's own processes and of pods in its network.
	// They chose the address of the default route, to which remote pods may have no route.
	MasqueradeHost Masquerade = "host"
	// MasqueradeAll changes the source of every client.
	MasqueradeAll Masquerade = "all"
)

// Validate returns an error for a policy that does not exist.
func (m Masquerade) Validate() error {
	switch m {
	case MasqueradeNone, MasqueradeHost, MasqueradeAll:
		return nil
	}
	return fmt.Errorf("--masquerade %s: choose %s, %s or %s", m, MasqueradeNone, MasqueradeHost, MasqueradeAll)
}

// hairpin masquerades a connection from an endpoint to itself. Otherwise the endpoint would reply
// to itself directly, and the reply would not be translated back. A process of the node that
// connects to itself stays on the loopback interface, where replies are translated anyway.
func (f *family) hairpin() []expr.Any {
	exprs := append(f.matchFamily(),
		f.loadAddress(f.saddr, reg(0)),
		f.loadAddress(f.daddr, reg(f.width)),
		f.lookupSet(ruleset.Hairpin, reg(0)),
	)
	return append(append(exprs, f.masqueradeTranslated()...), f.fullyRandom())
}

// masquerade changes the source of the clients of a range that the policy names.
func (f *family) masquerade(policy Masquerade, r netip.Prefix) []expr.Any {
	exprs := f.matchFamily()
	if policy == MasqueradeHost {
		exprs = append(exprs,
			&expr.Fib{Register: reg(0), FlagSADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: number(unix.RTN_LOCAL)})
	}
	// The destination of the client's first packet. It is not looked up in the set of VIPs because
	// nft (1.0.6 and others) aborts in `nft list ruleset` if a rule does that.
	exprs = append(exprs, &expr.Ct{Key: expr.CtKeyDST, Register: reg(0)})
	exprs = append(exprs, inRange(reg(0), r)...)
	return append(append(exprs, f.masqueradeTranslated()...), f.fullyRandom())
}

// inRange ends a rule for addresses outside a range.
func inRange(register uint32, r netip.Prefix) []expr.Any {
	first, mask := r.Masked().Addr().AsSlice(), net.CIDRMask(r.Bits(), r.Addr().BitLen())
	return []expr.Any{
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: first},
	}
}

// masqueradeTranslated ends a rule for connections that were not translated and for those on the
// loopback interface.
func (f *family) masqueradeTranslated() []expr.Any {
	lo := make([]byte, interfaceNameLength)
	copy(lo, "lo")
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: reg(0)},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: number(statusDNAT), Xor: number(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: number(0)},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: lo},
	}
}

// fullyRandom masquerades with a random port: two packets that look for a free port at the same
// time would otherwise find the same one, and the kernel drops the second.
func (f *family) fullyRandom() expr.Any { return &expr.Masq{FullyRandom: true} }

// refusedStates are the states of packets that are refused. The others belong to a connection that
// the rules let pass.
const refusedStates = expr.CtStateBitNEW | expr.CtStateBitINVALID | expr.CtStateBitUNTRACKED

// toVIP sends packets that are still addressed to a VIP after translation to the chain that refuses
// them: to a port without endpoints, or to an unknown port.
func (f *family) toVIP(refuse string) []expr.Any {
	return append(f.stillAddressedTo(), f.lookupSet(ruleset.VIPs, f.regVIP()), &expr.Verdict{Kind: expr.VerdictGoto, Chain: refuse})
}

// intoRange does the same for all addresses of a range, of which no service may have some.
func (f *family) intoRange(r netip.Prefix, refuse string) []expr.Any {
	return append(append(f.stillAddressedTo(), inRange(f.regVIP(), r)...), &expr.Verdict{Kind: expr.VerdictGoto, Chain: refuse})
}

// stillAddressedTo loads the destination of packets that may have to be refused.
func (f *family) stillAddressedTo() []expr.Any {
	return append(append(inState(refusedStates), f.matchFamily()...), f.loadAddress(f.daddr, f.regVIP()))
}

func inState(mask uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: reg(0)},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: number(mask), Xor: number(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: number(0)},
	}
}

// refuse drops or rejects a packet.
func (l *layout) refuse() [][]expr.Any {
	// Invalid packets are not translated. A reset in reply to one would end a working connection.
	rules := [][]expr.Any{append(inState(expr.CtStateBitINVALID), &expr.Verdict{Kind: expr.VerdictDrop})}
	for _, f := range l.families {
		silent := append(append(f.matchFamily(), f.loadFrontend()...), f.lookupSet(ruleset.Silent, f.regVIP()))
		rules = append(rules, append(silent, &expr.Verdict{Kind: expr.VerdictDrop}))
	}
	return append(rules,
		[]expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg(0)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: []byte{byte(ruleset.TCP)}},
			&expr.Reject{Type: rejectTCPReset},
		},
		[]expr.Any{&expr.Reject{Type: rejectICMPX, Code: rejectPort}},
	)
}
