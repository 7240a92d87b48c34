package zone

import (
	"encoding/binary"
	"strings"

	"github.com/miekg/dns"
)

const (
	headerLength = 12
	// pointerToQuestion stands for the name of the question, which follows the header (RFC 1035, 4.1.4).
	pointerToQuestion = 0xC000 | headerLength
	authoritativeBit  = 1 << 10
	responseBit       = 1 << 15
	recursionBit      = 1 << 8
	checkingBit       = 1 << 4
)

// Wire is the reply to the question that is asked most, for the addresses of a service or pod that has some, as the bytes to send. It says what
// Reply says and costs a fraction: no message of many pieces, no packing. It is nil for every other question, and where Reply would do more
// than that: requests with EDNS, and addresses that do not fit into 512 bytes.
func (z *Zone) Wire(r *dns.Msg, lower string) []byte {
	if len(r.Question) != 1 || len(r.Answer)+len(r.Ns)+len(r.Extra) > 0 {
		return nil
	}
	asked := &r.Question[0]
	if asked.Qtype != dns.TypeA && asked.Qtype != dns.TypeAAAA {
		return nil
	}
	v4, v6 := z.lookupAddresses(lower)
	addresses := v4
	if asked.Qtype == dns.TypeAAAA {
		addresses = v6
	}
	if addresses == nil || addresses.len() == 0 {
		return nil
	}
	record := 12 + int(addresses.width)
	size := headerLength + len(asked.Name) + 1 + 4 + record*addresses.len()
	// A byte written with a backslash is in no name that exists; asked only to be sure.
	if size > dns.MinMsgSize || strings.IndexByte(asked.Name, '\\') >= 0 {
		return nil
	}
	out := appendHeader(make([]byte, 0, size), r, addresses.len())
	out = appendName(out, asked.Name)
	out = binary.BigEndian.AppendUint16(out, asked.Qtype)
	out = binary.BigEndian.AppendUint16(out, asked.Qclass)
	if addresses.len() == 1 {
		return z.appendRecord(out, asked.Qtype, addresses.raw)
	}
	var buffer [32]int32
	for _, at := range addresses.pick(addresses.len(), buffer[:]) {
		out = z.appendRecord(out, asked.Qtype, addresses.at(int(at)))
	}
	return out
}

func (z *Zone) appendRecord(out []byte, qtype uint16, address []byte) []byte {
	out = binary.BigEndian.AppendUint16(out, pointerToQuestion)
	out = binary.BigEndian.AppendUint16(out, qtype)
	out = binary.BigEndian.AppendUint16(out, dns.ClassINET)
	out = binary.BigEndian.AppendUint32(out, z.TTL)
	out = binary.BigEndian.AppendUint16(out, uint16(len(address)))
	return append(out, address...)
}

// addressesNamed finds the addresses of a service or of a pod; nil where the name is neither.
func (z *Zone) lookupAddresses(lower string) (v4, v6 *addresses) {
	q := parse(lower, z.Name)
	if q.kind != nameService && q.kind != nameBelowService {
		return nil, nil
	}
	a, found := z.services.get(q.key)
	if !found {
		return nil, nil
	}
	if q.kind == nameService {
		return &a.v4, &a.v6
	}
	if at, found := a.byName[q.left]; found {
		return &a.hosts[at].v4, &a.hosts[at].v6
	}
	return nil, nil
}

func appendHeader(out []byte, r *dns.Msg, answers int) []byte {
	flags := uint16(responseBit|authoritativeBit) | uint16(r.Opcode&0xF)<<11
	if r.RecursionDesired {
		flags |= recursionBit
	}
	if r.CheckingDisabled {
		flags |= checkingBit
	}
	for _, field := range [...]uint16{r.Id, flags, 1, uint16(answers), 0, 0} {
		out = binary.BigEndian.AppendUint16(out, field)
	}
	return out
}

// appendName writes a name that has a dot at its end and no backslash: each label after its length.
func appendName(out []byte, name string) []byte {
	for start := 0; start < len(name); {
		length := strings.IndexByte(name[start:], '.')
		out = append(out, byte(length))
		out = append(out, name[start:start+length]...)
		start += length + 1
	}
	return append(out, 0)
}
