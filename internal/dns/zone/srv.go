package zone

import "github.com/miekg/dns"

// totalWeight is divided among the records of an answer, as CoreDNS does for services of a cluster.
const totalWeight = 100

// replySRV answers with the ports of a service. Each record occurs once, although two ports may
// differ only in their protocol. The addresses of the targets go into the additional section if
// they fit.
func (z *Zone) replySRV(r *dns.Msg, a *Answers, ports []portName, size int) *dns.Msg {
	m := newReply(r)
	if a.kind == Headless && len(ports) > 0 {
		z.hostTargets(m, a, ports, size)
	} else if a.kind != Headless && a.Endpoints() > 0 {
		z.serviceTargets(m, a, ports)
	}
	if len(m.Answer) == 0 {
		return z.replyNegative(r, dns.RcodeSuccess, z.Name)
	}
	weight := uint16(max(1, totalWeight/len(m.Answer)))
	for _, rr := range m.Answer {
		rr.(*dns.SRV).Weight = weight
	}
	if !fitsInto(&m.Msg, size) {
		m.Extra = nil // clients can query them; a truncated answer would cost a retry over TCP (RFC 2181, 9)
	}
	return &m.Msg
}

func (z *Zone) serviceTargets(m *reply, a *Answers, ports []portName) {
	hdr := z.header(m.question[0].Name, dns.TypeSRV)
	for i := range ports {
		if !isRepeated(ports, i) {
			m.Answer = append(m.Answer, &dns.SRV{Hdr: hdr, Port: ports[i].number, Target: a.fqdn})
		}
	}
	if len(m.Answer) > 0 {
		m.Extra = z.glue(nil, a.fqdn, &a.v4, &a.v6)
	}
}

// isRepeated reports whether an earlier port has the same number.
func isRepeated(ports []portName, i int) bool {
	for j := range i {
		if ports[j].number == ports[i].number {
			return true
		}
	}
	return false
}

// hostTargets lists each endpoint with each port, in random order, and no more records than can
// fit.
func (z *Zone) hostTargets(m *reply, a *Answers, ports []portName, size int) {
	targets := ports[0].targets
	if len(ports) > 1 {
		targets = distinct(ports)
	}
	limit := size/minSizeSRV + 1
	whole := len(targets) <= limit
	limit = min(limit, len(targets))
	order := ascending(len(targets), nil)
	shuffle(order, limit)
	hdr := z.header(m.question[0].Name, dns.TypeSRV)
	records := make([]dns.SRV, limit)
	m.Answer = make([]dns.RR, limit)
	hasGlue := map[int32]bool{}
	for i, at := range order[:limit] {
		t := targets[at]
		h := &a.hosts[t.host]
		records[i] = dns.SRV{Hdr: hdr, Port: t.number, Target: h.fqdn}
		m.Answer[i] = &records[i]
		if whole && !hasGlue[t.host] {
			hasGlue[t.host] = true
			m.Extra = z.glue(m.Extra, h.fqdn, &h.v4, &h.v6)
		}
	}
}

// distinct returns the targets of several ports, each once.
func distinct(ports []portName) []target {
	var out []target
	seen := map[target]bool{}
	for _, p := range ports {
		for _, t := range p.targets {
			if !seen[t] {
				seen[t] = true
				out = append(out, t)
			}
		}
	}
	return out
}

// fitsInto reports whether a message with compressed names is at most size bytes long with an OPT
// record.
func fitsInto(m *dns.Msg, size int) bool {
	const opt = 64 // with the options CoreDNS gives back
	if m.Len() <= size-opt {
		return true
	}
	m.Compress = true
	defer func() { m.Compress = false }()
	return m.Len() <= size-opt
}
