package ruleset

import (
	"maps"
	"net/netip"
	"slices"
)

// StaleFlows selects tracked connections that the rules do not reach: the kernel consults the rules
// for the first packet of a connection only.
type StaleFlows struct {
	// VIPs and Ranges are addresses that packets could reach untranslated, before the rules were in
	// place. A connection to one of them that is tracked without translation is stale.
	VIPs   map[netip.Addr]struct{}
	Ranges []netip.Prefix
	// LostEndpoints are frontends that lost endpoints. A flow to an endpoint that the frontend does
	// not have is stale if it is UDP: clients that go on sending would keep it for ever. A flow of
	// another protocol is stale only if it is unanswered. Packets that the client sends again would
	// keep it, and so would a new connection from the same port. Answered ones are the clients' to
	// end: they notice that their server is gone.
	//
	// The answer of an endpoint that was removed without draining may be under way. It is lost with
	// the flow, but its client sends the first packet again after a second, and another endpoint
	// gets that.
	LostEndpoints map[Frontend]struct{}
}

// Flow is a tracked connection.
type Flow struct {
	Frontend
	// Endpoint is where the packets of the client go: the frontend itself without translation.
	Endpoint netip.AddrPort
	// Unanswered is set if no packet came back from there.
	Unanswered bool
}

// Empty reports whether no connection can be stale.
func (s *StaleFlows) Empty() bool { return len(s.VIPs)+len(s.Ranges)+len(s.LostEndpoints) == 0 }

// Add adds what another transaction made stale.
func (s *StaleFlows) Add(more StaleFlows) {
	for vip := range more.VIPs {
		s.addVIP(vip)
	}
	for _, r := range more.Ranges {
		if !slices.Contains(s.Ranges, r) {
			s.Ranges = append(s.Ranges, r)
		}
	}
	if s.LostEndpoints == nil {
		s.LostEndpoints = map[Frontend]struct{}{}
	}
	maps.Copy(s.LostEndpoints, more.LostEndpoints)
}

func (s *StaleFlows) addVIP(vip netip.Addr) {
	if s.VIPs == nil {
		s.VIPs = map[netip.Addr]struct{}{}
	}
	s.VIPs[vip] = struct{}{}
}

// Matcher returns a function that reports whether a connection is stale; serving returns the
// endpoints that a frontend has.
func (s *StaleFlows) Matcher(serving func(Frontend) []netip.AddrPort) func(Flow) bool {
	sets := map[Frontend]map[netip.AddrPort]struct{}{} // of frontends that have a flow
	return func(flow Flow) bool {
		if flow.Endpoint.Addr() == flow.VIP {
			return s.isUntranslated(flow)
		}
		if flow.Protocol != UDP && !flow.Unanswered {
			return false
		}
		if _, lost := s.LostEndpoints[flow.Frontend]; !lost {
			return false
		}
		set := sets[flow.Frontend]
		if set == nil {
			set = map[netip.AddrPort]struct{}{}
			for _, e := range serving(flow.Frontend) {
				set[e] = struct{}{}
			}
			sets[flow.Frontend] = set
		}
		_, ok := set[flow.Endpoint]
		return !ok
	}
}

func (s *StaleFlows) isUntranslated(flow Flow) bool {
	if _, ok := s.VIPs[flow.VIP]; ok {
		return true
	}
	return slices.ContainsFunc(s.Ranges, func(r netip.Prefix) bool { return r.Contains(flow.VIP) })
}
