package zone

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

const (
	reverse4 = ".in-addr.arpa."
	reverse6 = ".ip6.arpa."
)

// IsReverse reports whether a zone is one of reverse names.
func IsReverse(zone string) bool { return Within(zone, reverse4[1:]) || Within(zone, reverse6[1:]) }

// ReplyReverse answers a query for the reverse name of an address. It returns nil if the zone has
// none: the next plugin, such as the cluster's own DNS, may have one.
func (z *Zone) ReplyReverse(r *dns.Msg, lower, apex string) *dns.Msg {
	ip, ok := parseReverse(lower)
	if !ok {
		return nil
	}
	name, found := z.reverse.get(ip)
	if !found {
		return nil
	}
	switch r.Question[0].Qtype {
	case dns.TypePTR:
	case dns.TypeAXFR, dns.TypeIXFR:
		return z.replyRefused(r)
	default:
		return z.replyNegative(r, dns.RcodeSuccess, reverseApex(lower, apex))
	}
	m := newReply(r)
	m.answer[0] = &dns.PTR{Hdr: z.header(r.Question[0].Name, dns.TypePTR), Ptr: name}
	m.Answer = m.answer[:]
	return &m.Msg
}

// ReplyReverseNegative answers a reverse query if no other plugin does. A full address without a
// name does not exist; a shorter name exists, because there may be addresses below it. In a zone of
// all addresses the server knows nothing of shorter names, and refuses them.
func (z *Zone) ReplyReverseNegative(r *dns.Msg, lower, apex string) *dns.Msg {
	if qtype := r.Question[0].Qtype; qtype == dns.TypeAXFR || qtype == dns.TypeIXFR || hasWildcard(lower) {
		return z.replyRefused(r)
	}
	_, whole := parseReverse(lower)
	switch {
	case whole:
		return z.replyNegative(r, dns.RcodeNameError, reverseApex(lower, apex))
	case isAllAddresses(apex):
		return z.replyRefused(r)
	}
	return z.replyNegative(r, dns.RcodeSuccess, apex)
}

func isAllAddresses(apex string) bool { return apex == reverse4[1:] || apex == reverse6[1:] }

// reverseApex returns the zone in whose name a negative answer about a full address is given. Where
// the server is asked about all addresses, that is the /24 or /64 of the address: a server is not
// the authority for all of in-addr.arpa.
func reverseApex(lower, apex string) string {
	const labels4, labels6 = 1, 16 // left of the zone
	skip := labels4
	if apex == reverse6[1:] {
		skip = labels6
	}
	if !isAllAddresses(apex) {
		return apex
	}
	for range skip {
		_, lower, _ = strings.Cut(lower, ".")
	}
	return lower
}

// parseReverse returns the address in a full reverse name, in lower case.
func parseReverse(name string) (netip.Addr, bool) {
	if digits, is4 := strings.CutSuffix(name, reverse4); is4 {
		return parseReverse4(digits)
	}
	if digits, is6 := strings.CutSuffix(name, reverse6); is6 {
		return parseReverse6(digits)
	}
	return netip.Addr{}, false
}

func parseReverse4(labels string) (netip.Addr, bool) {
	var bytes [4]byte
	for i := range bytes {
		var label string
		labels, label = cutLast(labels)
		if label == "" || len(label) > 3 || (label[0] == '0' && len(label) > 1) || (labels == "") != (i == 3) {
			return netip.Addr{}, false
		}
		n := 0
		for j := range len(label) {
			if label[j] < '0' || label[j] > '9' {
				return netip.Addr{}, false
			}
			n = n*10 + int(label[j]-'0')
		}
		if n > 255 {
			return netip.Addr{}, false
		}
		bytes[i] = byte(n)
	}
	return netip.AddrFrom4(bytes), true
}

func parseReverse6(nibbles string) (netip.Addr, bool) {
	var bytes [16]byte
	const length = 32*2 - 1 // a digit each, dots between
	if len(nibbles) != length {
		return netip.Addr{}, false
	}
	for i := range 32 {
		if i > 0 && nibbles[length-2*i] != '.' {
			return netip.Addr{}, false
		}
		digit := strings.IndexByte("0123456789abcdef", nibbles[length-1-2*i])
		if digit < 0 {
			return netip.Addr{}, false
		}
		bytes[i/2] |= byte(digit) << (4 * (1 - i%2))
	}
	return netip.AddrFrom16(bytes), true
}
