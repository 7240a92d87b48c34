package dns

import (
	"context"
	"slices"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/coredns/coredns/plugin/pkg/transport"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/internal/dns/zone"
)

// Plugin answers one clusterset zone and the reverse names of its addresses.
type Plugin struct {
	Next plugin.Handler

	zone *zone.Zone
	// reverse are the reverse zones in the Corefile, longest first.
	reverse []string
	fall    fall.F
	data    *controller
	// writesBytes reports whether frequent replies are written as bytes; see passesBytes.
	writesBytes bool
}

// Name implements plugin.Handler.
func (p *Plugin) Name() string { return pluginName }

// Ready implements ready.Readiness. It returns false until all objects have been read from the API
// server once.
func (p *Plugin) Ready() bool { return p.data.isSynced() }

// ServeDNS implements plugin.Handler.
func (p *Plugin) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	start := time.Now()
	name := zone.Lower(r.Question[0].Name)
	forward := zone.Within(name, p.zone.Name)
	apex := p.zone.Name
	if !forward {
		if apex = p.reverseZone(name); apex == "" {
			return plugin.NextOrFailure(pluginName, p.Next, ctx, w, r)
		}
	}
	if rcode := p.refusal(r); rcode != dns.RcodeSuccess {
		countQuery(ctx, r.Question[0].Qtype, rcode, start)
		return rcode, nil // the server writes the reply
	}
	var m *dns.Msg
	if forward {
		if p.writesBytes {
			if wire := p.zone.Wire(r, name); wire != nil {
				_, err := w.Write(wire)
				countQuery(ctx, r.Question[0].Qtype, dns.RcodeSuccess, start)
				return dns.RcodeSuccess, err
			}
		}
		state := request.Request{W: w, Req: r}
		m = p.zone.Reply(r, name, state.Size())
		if m.Rcode == dns.RcodeNameError && p.Next != nil && p.fall.Through(name) {
			return plugin.NextOrFailure(pluginName, p.Next, ctx, w, r)
		}
	} else if m = p.zone.ReplyReverse(r, name, apex); m == nil {
		if p.Next != nil && p.fall.Through(name) {
			return plugin.NextOrFailure(pluginName, p.Next, ctx, w, r)
		}
		m = p.zone.ReplyReverseNegative(r, name, apex)
	}
	rcode := m.Rcode // plugins before this one may change the message
	err := w.WriteMsg(m)
	countQuery(ctx, r.Question[0].Qtype, rcode, start)
	return dns.RcodeSuccess, err
}

// bytesPassThrough are the plugins of this server that hand on bytes as they are and need no
// message. `prometheus` counts bytes, and records them as a success, which they are. `cache`, `log`
// and `loadbalance` read or change the message.
var bytesPassThrough = []string{"errors", "prometheus", "hosts", "kubernetes"}

// passesBytes reports whether bytes that this plugin writes reach the client: the transport is
// plain DNS, and no plugin before this one needs the message. It holds for as long as the server
// block runs, and is known as soon as all its plugins are set up.
func passesBytes(block *dnsserver.Config) bool {
	before := dnsserver.Directives[:max(0, slices.Index(dnsserver.Directives, pluginName))]
	handlers := block.Handlers()
	return block.Transport == transport.DNS && len(handlers) > 0 && !slices.ContainsFunc(handlers, func(h plugin.Handler) bool {
		return slices.Contains(before, h.Name()) && !slices.Contains(bytesPassThrough, h.Name())
	})
}

// refusal returns the response code for a query that is not answered, or success.
func (p *Plugin) refusal(r *dns.Msg) int {
	switch {
	case r.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented
	case r.Question[0].Qclass != dns.ClassINET:
		return dns.RcodeRefused
	case !p.data.isSynced():
		// No object has been read yet. Clients would believe and cache an NXDOMAIN for a name that
		// exists.
		return dns.RcodeServerFailure
	}
	return dns.RcodeSuccess
}

func (p *Plugin) reverseZone(name string) string {
	for _, z := range p.reverse {
		if zone.Within(name, z) {
			return z
		}
	}
	return ""
}
