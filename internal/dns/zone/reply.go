package zone

import (
	"slices"

	"github.com/miekg/dns"
)

const (
	// SchemaVersion is the version of the Kubernetes DNS schema that the zone follows.
	SchemaVersion = "1.1.0"
	schemaTTL     = 28800 // as in the specification's example
	// Minimum size of a record, with its name compressed.
	minSizeA, minSizeAAAA, minSizeSRV = 16, 28, 20
)

// Reply returns the reply to a query for a name within the zone; lower is that name in lower case.
// size is the size of the client's buffer. The reply may exceed it: the writer truncates it and
// sets the TC bit.
//
// The reply and its records belong to the caller; only the bytes of addresses and names are shared.
func (z *Zone) Reply(r *dns.Msg, lower string, size int) *dns.Msg {
	qtype := r.Question[0].Qtype
	if qtype == dns.TypeAXFR || qtype == dns.TypeIXFR {
		return z.replyRefused(r)
	}
	q := parse(lower, z.Name)
	switch q.kind {
	case nameService:
		if a, found := z.services.get(q.key); found {
			return z.replyService(r, a, size)
		}
	case nameBelowService:
		if a, found := z.services.get(q.key); found {
			return z.replyBelowService(r, a, q.left, size)
		}
	case nameApex:
		return z.replyApex(r)
	case nameVersion:
		return z.replyVersion(r)
	case nameServer:
		ns := z.ns.Load()
		return z.replyAddresses(r, &ns.v4, &ns.v6, size)
	case nameServerParent, nameServices:
		return z.replyNegative(r, dns.RcodeSuccess, z.Name)
	case nameNamespace:
		if _, found := z.namespaces.get(q.namespace); found {
			return z.replyNegative(r, dns.RcodeSuccess, z.Name)
		}
	}
	if hasWildcard(lower) {
		return z.replyRefused(r)
	}
	return z.replyNegative(r, dns.RcodeNameError, z.Name)
}

func (z *Zone) replyService(r *dns.Msg, a *Answers, size int) *dns.Msg {
	if r.Question[0].Qtype == dns.TypeSRV {
		return z.replySRV(r, a, a.ports, size)
	}
	return z.replyAddresses(r, &a.v4, &a.v6, size)
}

func (z *Zone) replyBelowService(r *dns.Msg, a *Answers, left string, size int) *dns.Msg {
	for i := range a.ports {
		switch left {
		case a.ports[i].left:
			if r.Question[0].Qtype == dns.TypeSRV {
				return z.replySRV(r, a, a.ports[i:i+1], size)
			}
			return z.replyNegative(r, dns.RcodeSuccess, z.Name)
		case a.ports[i].protocol:
			return z.replyNegative(r, dns.RcodeSuccess, z.Name)
		}
	}
	if at, found := a.byName[left]; found {
		return z.replyAddresses(r, &a.hosts[at].v4, &a.hosts[at].v6, size)
	}
	if slices.Contains(a.emptyNonTerminals, left) {
		return z.replyNegative(r, dns.RcodeSuccess, z.Name)
	}
	if hasWildcard(left + ".") {
		return z.replyRefused(r)
	}
	return z.replyNegative(r, dns.RcodeNameError, z.Name)
}

// reply is a message with space for one address and EDNS, which is all that most replies need, in
// one allocation.
type reply struct {
	dns.Msg
	question [1]dns.Question
	answer   [1]dns.RR
	extra    [1]dns.RR
	a        dns.A
}

func newReply(r *dns.Msg) *reply {
	m := &reply{}
	setReply(&m.Msg, &m.question, r)
	m.Extra = m.extra[:0]
	return m
}

// setReply fills in the header and question of the reply to r.
func setReply(m *dns.Msg, question *[1]dns.Question, r *dns.Msg) {
	m.Id = r.Id
	m.Response = true
	m.Opcode = r.Opcode
	m.RecursionDesired = r.RecursionDesired
	m.CheckingDisabled = r.CheckingDisabled
	m.Authoritative = true
	question[0] = r.Question[0]
	m.Question = question[:]
}

// replyAddresses answers with the addresses of an existing name.
func (z *Zone) replyAddresses(r *dns.Msg, v4, v6 *addresses, size int) *dns.Msg {
	switch r.Question[0].Qtype {
	case dns.TypeA:
		if v4.len() > 0 {
			return z.replyA(r, v4, size)
		}
	case dns.TypeAAAA:
		if v6.len() > 0 {
			return z.replyAAAA(r, v6, size)
		}
	}
	return z.replyNegative(r, dns.RcodeSuccess, z.Name)
}

func (z *Zone) header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: z.TTL}
}

func (z *Zone) replyA(r *dns.Msg, v4 *addresses, size int) *dns.Msg {
	m := newReply(r)
	hdr := z.header(r.Question[0].Name, dns.TypeA)
	if v4.len() == 1 {
		m.a = dns.A{Hdr: hdr, A: v4.at(0)}
		m.answer[0] = &m.a
		m.Answer = m.answer[:]
		return &m.Msg
	}
	var buffer [32]int32
	// Records beyond the buffer need not be written. One too many is: it makes the writer set the
	// TC bit.
	order := v4.pick(size/minSizeA+1, buffer[:])
	records := make([]dns.A, len(order))
	m.Answer = make([]dns.RR, len(order))
	for i, at := range order {
		records[i] = dns.A{Hdr: hdr, A: v4.at(int(at))}
		m.Answer[i] = &records[i]
	}
	z.keepOutOfCaches(&m.Msg)
	return &m.Msg
}

func (z *Zone) replyAAAA(r *dns.Msg, v6 *addresses, size int) *dns.Msg {
	m := newReply(r)
	hdr := z.header(r.Question[0].Name, dns.TypeAAAA)
	var buffer [32]int32
	order := v6.pick(size/minSizeAAAA+1, buffer[:])
	records := make([]dns.AAAA, len(order))
	m.Answer = make([]dns.RR, len(order))
	for i, at := range order {
		records[i] = dns.AAAA{Hdr: hdr, AAAA: v6.at(int(at))}
		m.Answer[i] = &records[i]
	}
	if len(order) > 1 {
		z.keepOutOfCaches(&m.Msg)
	}
	return &m.Msg
}

// keepOutOfCaches adds the zone's NS record with a TTL of 0 to an answer whose order matters: a
// new random one for each client, or near addresses first. A cache of whole messages, such as
// CoreDNS's, keeps a message as long as its shortest TTL says, so it does not keep this one. A
// cache of records keeps the addresses for their own TTL.
func (z *Zone) keepOutOfCaches(m *dns.Msg) {
	qname := m.Question[0].Name
	hdr := z.header(qname[len(qname)-len(z.Name):], dns.TypeNS)
	hdr.Ttl = 0
	authority := &struct {
		records [1]dns.RR
		ns      dns.NS
	}{ns: dns.NS{Hdr: hdr, Ns: z.soa.ns}}
	authority.records[0] = &authority.ns
	m.Ns = authority.records[:]
}

// replyRefused answers REFUSED. That is no statement about the name, so it is not authoritative.
func (z *Zone) replyRefused(r *dns.Msg) *dns.Msg {
	m := newReply(r)
	m.Authoritative = false
	m.Rcode = dns.RcodeRefused
	return &m.Msg
}

// negativeReply is a message without answers but with the zone's SOA record, by which resolvers
// cache it (RFC 2308).
type negativeReply struct {
	dns.Msg
	question [1]dns.Question
	ns       [1]dns.RR
	extra    [1]dns.RR
	soa      dns.SOA
}

// replyNegative answers that a name does not exist (NXDOMAIN) or has no records of the queried type
// (success).
func (z *Zone) replyNegative(r *dns.Msg, rcode int, apex string) *dns.Msg {
	m := &negativeReply{}
	setReply(&m.Msg, &m.question, r)
	m.Rcode = rcode
	m.Extra = m.extra[:0]
	m.soa = z.soaRecord(r.Question[0].Name, apex)
	m.ns[0] = &m.soa
	m.Ns = m.ns[:]
	return &m.Msg
}

// soaRecord returns the SOA record of a zone. Its name has the letter case of the query
// (draft-vixie-dnsext-dns0x20).
func (z *Zone) soaRecord(qname, apex string) dns.SOA {
	return dns.SOA{
		Hdr: z.header(qname[len(qname)-len(apex):], dns.TypeSOA),
		Ns:  z.soa.ns, Mbox: z.soa.mbox, Serial: z.serial.Load(),
		Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: z.TTL,
	}
}

func (z *Zone) replyApex(r *dns.Msg) *dns.Msg {
	qname := r.Question[0].Name
	m := newReply(r)
	switch r.Question[0].Qtype {
	case dns.TypeSOA:
		soa := z.soaRecord(qname, z.Name)
		m.Answer = []dns.RR{&soa}
	case dns.TypeNS:
		m.Answer = []dns.RR{&dns.NS{Hdr: z.header(qname, dns.TypeNS), Ns: z.soa.ns}}
		ns := z.ns.Load()
		m.Extra = z.glue(nil, ns.fqdn, &ns.v4, &ns.v6)
	default:
		return z.replyNegative(r, dns.RcodeSuccess, z.Name)
	}
	return &m.Msg
}

func (z *Zone) replyVersion(r *dns.Msg) *dns.Msg {
	if r.Question[0].Qtype != dns.TypeTXT {
		return z.replyNegative(r, dns.RcodeSuccess, z.Name)
	}
	m := newReply(r)
	hdr := z.header(r.Question[0].Name, dns.TypeTXT)
	hdr.Ttl = schemaTTL
	m.Answer = []dns.RR{&dns.TXT{Hdr: hdr, Txt: []string{SchemaVersion}}}
	return &m.Msg
}

// glue appends the addresses of a name to an additional section.
func (z *Zone) glue(to []dns.RR, name string, v4, v6 *addresses) []dns.RR {
	for i := range v4.len() {
		to = append(to, &dns.A{Hdr: z.header(name, dns.TypeA), A: v4.at(i)})
	}
	for i := range v6.len() {
		to = append(to, &dns.AAAA{Hdr: z.header(name, dns.TypeAAAA), AAAA: v6.at(i)})
	}
	return to
}
