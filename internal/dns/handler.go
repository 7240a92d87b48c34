package dns

import (
	"context"
	"reflect"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/plugin/pkg/fall"
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
		countQuery(r.Question[0].Qtype, rcode, start)
		return rcode, nil // the server writes the reply
	}
	var m *dns.Msg
	if forward {
		if acceptsWire(w) {
			if wire := p.zone.Wire(r, name); wire != nil {
				_, err := w.Write(wire)
				countQuery(r.Question[0].Qtype, dns.RcodeSuccess, start)
				return dns.RcodeSuccess, err
			}
		}
		state := request.Request{W: w, Req: r}
		m = p.zone.Reply(r, name, state.Size())
		if m.Rcode == dns.RcodeNameError && p.Next != nil && p.fall.Through(name) {
			return plugin.NextOrFailure(pluginName, p.Next, ctx, w, r)
		}
	} else if m = p.zone.ReplyReverse(r, name, apex); m == nil {
		if p.Next != nil {
			return plugin.NextOrFailure(pluginName, p.Next, ctx, w, r)
		}
		m = p.zone.ReplyReverseNegative(r, name, apex)
	}
	rcode := m.Rcode // plugins before this one may change the message
	err := w.WriteMsg(m)
	countQuery(r.Question[0].Qtype, rcode, start)
	return dns.RcodeSuccess, err
}

// acceptsWire reports whether bytes written to w reach the client unchanged: no plugin before this
// one reads or changes the message, and the transport is UDP or TCP. The metrics plugin only counts
// bytes and records them as a success, which they are.
func acceptsWire(w dns.ResponseWriter) bool {
	if recorder, ok := w.(*metrics.Recorder); ok {
		w = recorder.ResponseWriter
	}
	scrubber, ok := w.(*request.ScrubWriter)
	// The server's own writer is not exported. The writers of DNS over HTTPS, QUIC and gRPC have other
	// type names.
	return ok && reflect.TypeOf(scrubber.ResponseWriter).String() == "*dns.response"
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
