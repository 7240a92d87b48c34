package kernel

import (
	"encoding/binary"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// All rules keep the parts of their keys in the same 32-bit registers, so that each key is a run of neighbours and what a map returns
// lands where the next key wants it. With w registers to an address:
//
//	0        w      2w          2w+1    2w+2     2w+3       3w+3
//	client   VIP    protocol    port    number   endpoint   its port
//
//	clients    0 … 2w+1         services                    w … 2w+1
//	                            endpoints, slots, members   w … 2w+2
//
// In IPv6 that is all of the sixteen registers there are.
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

// thisFamily stops a rule for packets of the other family, in whose headers the offsets mean something else.
func (f *family) matchFamily() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: []byte{f.proto}},
	}
}

func (f *family) loadAddress(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.addr.Bytes}
}

// frontend loads what the packet is addressed to.
func (f *family) loadFrontend() []expr.Any {
	return []expr.Any{
		f.loadAddress(f.daddr, f.regVIP()),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.regProtocol()},
		// TCP, UDP and SCTP have the destination port at the same place.
		&expr.Payload{DestRegister: f.regPort(), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

func (f *family) lookupSet(kind ruleset.Kind, from uint32) expr.Any {
	return &expr.Lookup{SourceRegister: from, SetName: f.sets[kind].Name}
}

func (f *family) lookupMap(name string, from, to uint32) expr.Any {
	return &expr.Lookup{SourceRegister: from, SetName: name, DestRegister: to, IsDestRegSet: true}
}

// dispatch finds the class of a service port and goes to its chain. Two steps, because the kernel checks all elements of a map of
// verdicts whenever one is added: so that map has as many elements as there are classes, not services.
func (f *family) dispatch() []expr.Any {
	exprs := append(append(f.matchFamily(), f.loadFrontend()...), f.lookupMap(f.sets[ruleset.Services].Name, f.regVIP(), f.regNumber()))
	return append(append(exprs, f.copyThroughMark()...), f.lookupMap(f.classes.Name, f.regNumber(), unix.NFT_REG_VERDICT))
}

// throughMark takes a number that a map returned through the packet's mark, which keeps its value. The kernel needs nothing of the kind;
// but nft (1.0.6, and others) aborts in `nft list ruleset` when a rule looks up what another lookup returned.
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
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: f.regEndpoint(), RegProtoMin: f.regEndpointPort(), Specified: true}
}

// remembered loads the number of the endpoint that a client was sent to.
func (f *family) loadClientNumber() []expr.Any {
	return append(append(f.loadClientKey(), f.lookupMap(f.clients.Name, f.regClient(), f.regNumber())), f.copyThroughMark()...)
}

func (f *family) loadClientKey() []expr.Any {
	return append([]expr.Any{f.loadAddress(f.saddr, f.regClient())}, f.loadFrontend()...)
}

// member loads the endpoint with a number, and ends the rule when it is gone.
func (f *family) loadMember() expr.Any {
	return f.lookupMap(f.sets[ruleset.Members].Name, f.regVIP(), f.regEndpoint())
}

func (f *family) updateClient(operation uint32, timeout uint32) expr.Any {
	return &expr.Dynset{
		SrcRegKey: f.regClient(), SrcRegData: f.regNumber(), SetName: f.clients.Name,
		Operation: operation, Timeout: time.Duration(timeout) * time.Second,
	}
}

// returning sends a client that is remembered to its endpoint again, if that still is one, and remembers it for another while.
func (f *family) sendRememberedClient(timeout uint32) []expr.Any {
	return append(f.loadClientNumber(), f.loadMember(), f.updateClient(dynsetUpdate, timeout), f.dnat())
}

// forget drops a client whose endpoint is gone: to add it again would change nothing.
func (f *family) deleteStaleClient() []expr.Any {
	return append(f.loadClientNumber(), f.updateClient(dynsetDelete, 0))
}

// remember sends a new client to one of the endpoints. When the map is full the rule ends there, and the next one picks.
func (f *family) pickAndRemember(count, timeout uint32) []expr.Any {
	exprs := append(f.loadClientKey(), f.randomIndex(count), f.lookupMap(f.sets[ruleset.Slots].Name, f.regVIP(), f.regNumber()))
	return append(append(exprs, f.copyThroughMark()...), f.loadMember(), f.updateClient(dynsetAdd, timeout), f.dnat())
}

// hairpin gives a connection from an endpoint to itself another source: it would answer itself directly, not through us. What
// stays on the loopback interface, a process of the node that reaches itself, is answered through us anyway.
func (f *family) hairpin() []expr.Any {
	lo := make([]byte, interfaceNameLength)
	copy(lo, "lo")
	return append(f.matchFamily(),
		f.loadAddress(f.saddr, reg(0)),
		f.loadAddress(f.daddr, reg(f.width)),
		f.lookupSet(ruleset.Hairpin, reg(0)),
		&expr.Ct{Key: expr.CtKeySTATUS, Register: reg(0)},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: number(statusDNAT), Xor: number(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: number(0)},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: lo},
		&expr.Masq{},
	)
}

// refuse ends what still is addressed to a VIP after translation: a port without endpoints or nobody's port.
func (f *family) refuse() [][]expr.Any {
	toVIP := func() []expr.Any {
		return append(f.matchFamily(), f.loadAddress(f.daddr, f.regVIP()), f.lookupSet(ruleset.VIPs, f.regVIP()))
	}
	return [][]expr.Any{
		// Packets that connection tracking does not understand are not translated. A reset would end a connection that lives.
		append(toVIP(),
			&expr.Ct{Key: expr.CtKeySTATE, Register: reg(0)},
			&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: number(expr.CtStateBitINVALID), Xor: number(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: number(0)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		),
		append(append(f.matchFamily(), f.loadFrontend()...), f.lookupSet(ruleset.Silent, f.regVIP()), &expr.Verdict{Kind: expr.VerdictDrop}),
		append(toVIP(),
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg(0)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: []byte{byte(ruleset.TCP)}},
			&expr.Reject{Type: rejectTCPReset},
		),
		append(toVIP(), &expr.Reject{Type: rejectICMPX, Code: rejectPort}),
	}
}
