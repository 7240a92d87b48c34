package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// Conntrack is the table of tracked connections of one network namespace.
type Conntrack struct{ netns int }

// OpenConntrack returns the tracked connections of the network namespace with the given file
// descriptor, or of this process's if it is zero. It does not access the kernel yet.
func OpenConntrack(netns int) Conntrack { return Conntrack{netns} }

const (
	// genericHeader is the length of struct nfgenmsg, which precedes the attributes of a message.
	genericHeader = 4
	// seenReply is IPS_SEEN_REPLY of the kernel's nf_conntrack_common.h: a packet came back.
	seenReply = 1 << 1
)

// Delete deletes the tracked connections for which stale is true, and returns how many. It reads
// the table once for each family and keeps none of it: a node can have a million connections. It
// fails if connections cannot be listed or one cannot be deleted.
func (c Conntrack) Delete(stale func(ruleset.Flow) bool) (int, error) {
	list, err := c.socket()
	if err != nil {
		return 0, fmt.Errorf("open netlink: %w", err)
	}
	defer list.Close()
	del, err := c.socket()
	if err != nil {
		return 0, fmt.Errorf("open netlink: %w", err)
	}
	defer del.Close()
	var deleted int
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		var failed error
		err := request(list, family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
			done, err := deleteStale(del, family, message, stale)
			if err != nil {
				failed = err
			}
			if done {
				deleted++
			}
			return true
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("list tracked connections: %w", err))
		}
		if failed != nil {
			errs = append(errs, fmt.Errorf("delete tracked connections: %w", failed))
		}
	}
	return deleted, errors.Join(errs...)
}

// deleteStale deletes the connection of a listed message if it is stale, and reports whether it
// did.
func deleteStale(socket *nl.SocketHandle, family uint8, message []byte, stale func(ruleset.Flow) bool) (bool, error) {
	flow, ok := parseFlow(message)
	if !ok || !stale(flow) {
		return false, nil
	}
	send := func(operation int) ([][]byte, error) {
		// The kernel marks also a single connection as part of a list, so only the ACK ends it.
		req := request(socket, family, operation, unix.NLM_F_ACK)
		req.AddRawData(message[genericHeader:])
		return req.Execute(unix.NETLINK_NETFILTER, 0)
	}
	if flow.Unanswered {
		// The listing can be milliseconds old. If the connection was answered meanwhile, the client
		// has established it, and would be reset without it. The kernel cannot delete on condition,
		// so the time of one request remains.
		now, err := send(nl.IPCTNL_MSG_CT_GET)
		if errors.Is(err, syscall.ENOENT) {
			return false, nil
		}
		if err != nil || len(now) == 0 {
			return false, err
		}
		if flow, ok = parseFlow(now[0]); !ok || !stale(flow) {
			return false, nil
		}
	}
	if _, err := send(nl.IPCTNL_MSG_CT_DELETE); err != nil && !errors.Is(err, syscall.ENOENT) {
		return false, err
	}
	return true, nil
}

func (c Conntrack) socket() (*nl.SocketHandle, error) {
	at := netns.None()
	if c.netns != 0 {
		at = netns.NsHandle(c.netns)
	}
	socket, err := nl.GetNetlinkSocketAt(at, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	return &nl.SocketHandle{Socket: socket}, nil
}

func request(socket *nl.SocketHandle, family uint8, operation, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|operation, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: socket}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

// parseFlow returns the connection of a message. ok is false for a protocol without ports.
func parseFlow(message []byte) (flow ruleset.Flow, ok bool) {
	var original, reply []byte
	eachAttribute(message[min(genericHeader, len(message)):], func(kind uint16, value []byte) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			original = value
		case nl.CTA_TUPLE_REPLY:
			reply = value
		case nl.CTA_STATUS:
			flow.Unanswered = len(value) == 4 && binary.BigEndian.Uint32(value)&seenReply == 0
		}
	})
	_, to, protocol := parseTuple(original)
	from, _, _ := parseTuple(reply)
	flow.VIP, flow.Port, flow.Protocol, flow.Endpoint = to.Addr(), to.Port(), protocol, from
	return flow, to.IsValid() && from.IsValid()
}

func parseTuple(tuple []byte) (from, to netip.AddrPort, protocol ruleset.Protocol) {
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	var hasPorts bool
	port := func(value []byte) uint16 {
		if len(value) < 2 {
			return 0
		}
		return uint16(value[0])<<8 | uint16(value[1])
	}
	eachAttribute(tuple, func(kind uint16, value []byte) {
		switch kind {
		case nl.CTA_TUPLE_IP:
			eachAttribute(value, func(kind uint16, value []byte) {
				switch kind {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					source, _ = netip.AddrFromSlice(value)
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					destination, _ = netip.AddrFromSlice(value)
				}
			})
		case nl.CTA_TUPLE_PROTO:
			eachAttribute(value, func(kind uint16, value []byte) {
				switch kind {
				case nl.CTA_PROTO_NUM:
					if len(value) > 0 {
						protocol = ruleset.Protocol(value[0])
					}
				case nl.CTA_PROTO_SRC_PORT:
					sourcePort, hasPorts = port(value), true
				case nl.CTA_PROTO_DST_PORT:
					destinationPort = port(value)
				}
			})
		}
	})
	if !source.IsValid() || !destination.IsValid() || !hasPorts {
		return netip.AddrPort{}, netip.AddrPort{}, protocol
	}
	return netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(destination, destinationPort), protocol
}

// eachAttribute calls f for every netlink attribute, and ends at the first that is cut off.
func eachAttribute(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		length, kind := int(nl.NativeEndian().Uint16(b)), nl.NativeEndian().Uint16(b[2:])
		if length < unix.SizeofNlAttr || length > len(b) {
			return
		}
		f(kind&nl.NLA_TYPE_MASK, b[unix.SizeofNlAttr:length])
		aligned := (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
		b = b[min(aligned, len(b)):]
	}
}
