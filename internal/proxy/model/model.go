// Package model selects the endpoints to which a node sends the clients of an imported service. It
// is pure: it turns objects and the node's location into a ruleset.Service.
package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects/addresses"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// Location is where this node is. A field that is unknown is empty, and no endpoint is near by that
// measure.
type Location struct {
	Cluster string
	Node    string
	Zone    string
	Region  string
}

// Result is what a node programs for a service.
type Result struct {
	Service ruleset.Service
	// Refused is what was not used and why, each once and sorted.
	Refused []string
}

// Build decides about one service. A service without clusterset IPs gives an empty Service:
// headless and classic services do not use the data plane.
func Build(si *mcsv1beta1.ServiceImport, endpointSlices []*discoveryv1.EndpointSlice, here Location) Result {
	b := &builder{here: here}
	if si == nil || si.Spec.Type != mcsv1beta1.ClusterSetIP {
		return Result{}
	}
	vips := b.vips(si)
	if len(vips) == 0 {
		return b.result()
	}
	b.out.VIPs = vips
	ports := b.ports(si)
	preferred := preferenceOf(si)
	for _, vip := range vips {
		candidates := b.candidates(endpointSlices, vip.Is6(), ports)
		for _, p := range ports {
			p.port.VIP = vip
			b.out.Ports = append(b.out.Ports, b.port(p, candidates[p.id], preferred))
		}
	}
	return b.result()
}

type builder struct {
	here    Location
	out     ruleset.Service
	refused map[string]struct{}
	hairpin map[netip.Addr]struct{}
}

func (b *builder) refuse(format string, args ...any) {
	if b.refused == nil {
		b.refused = map[string]struct{}{}
	}
	b.refused[fmt.Sprintf(format, args...)] = struct{}{}
}

func (b *builder) result() Result {
	r := Result{Service: b.out}
	for text := range b.refused {
		r.Refused = append(r.Refused, text)
	}
	slices.Sort(r.Refused)
	return r
}

// vips returns the addresses of a service, at most one of each family, as in the API.
func (b *builder) vips(si *mcsv1beta1.ServiceImport) []netip.Addr {
	var out []netip.Addr
	for _, text := range si.Spec.IPs {
		addr, problem := parseAddress(text)
		switch {
		case problem != "":
			b.refuse("clusterset IP %.64q %s", text, problem)
		case slices.ContainsFunc(out, func(other netip.Addr) bool { return other.Is6() == addr.Is6() }):
			b.refuse("clusterset IP %s is the second of its family", addr)
		default:
			out = append(out, addr)
		}
	}
	return out
}

// portID is the key by which ports of slices match those of the service.
type portID struct {
	name     string
	protocol ruleset.Protocol
}

// servicePort is a port of the service before it has a VIP.
type servicePort struct {
	port ruleset.Port
	id   portID
}

func (b *builder) ports(si *mcsv1beta1.ServiceImport) []servicePort {
	var out []servicePort
	for i := range si.Spec.Ports {
		p := &si.Spec.Ports[i]
		protocol, ok := protocolOf(p.Protocol)
		same := func(other servicePort) bool {
			return other.port.Protocol == protocol && (int32(other.port.Port) == p.Port || other.id.name == p.Name)
		}
		switch {
		case !ok:
			b.refuse("port %d has protocol %.16q, which is not TCP, UDP or SCTP", p.Port, p.Protocol)
		case p.Port < 1 || p.Port > 65535:
			b.refuse("port %d/%s is not between 1 and 65535", p.Port, protocol)
		case slices.ContainsFunc(out, same):
			b.refuse("port %d/%s is listed twice, by number or by name", p.Port, protocol)
		default:
			port := ruleset.Port{Frontend: ruleset.Frontend{Protocol: protocol, Port: uint16(p.Port)}, Affinity: affinity(si)}
			out = append(out, servicePort{port: port, id: portID{p.Name, protocol}})
		}
	}
	return out
}

// affinity returns for how many seconds a client keeps its endpoint.
func affinity(si *mcsv1beta1.ServiceImport) uint32 {
	if si.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := si.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil &&
		*c.ClientIP.TimeoutSeconds > 0 {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return min(uint32(seconds), ruleset.MaxAffinity)
}

func protocolOf(p corev1.Protocol) (ruleset.Protocol, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return ruleset.TCP, true
	case corev1.ProtocolUDP:
		return ruleset.UDP, true
	case corev1.ProtocolSCTP:
		return ruleset.SCTP, true
	}
	return 0, false
}

// port selects the endpoints of a port and adds those that may connect to themselves to the hairpin
// addresses.
func (b *builder) port(sp servicePort, all []candidate, preferred preference) ruleset.Port {
	p, chosen := sp.port, selectEndpoints(all, preferred)
	if len(chosen) > ruleset.MaxEndpoints {
		b.refuse("port %d/%s has %d endpoints, of which the first %d are used", p.Port, p.Protocol, len(chosen), ruleset.MaxEndpoints)
		chosen = chosen[:ruleset.MaxEndpoints]
	}
	p.Draining = draining(all, chosen)
	p.Silent = preferred.localOnly && len(chosen) == 0 && slices.ContainsFunc(all, candidate.usable)
	for i := range chosen {
		p.Endpoints = append(p.Endpoints, chosen[i].address)
		addr := chosen[i].address.Addr()
		if _, known := b.hairpin[addr]; chosen[i].maybeLocal && !known {
			if b.hairpin == nil {
				b.hairpin = map[netip.Addr]struct{}{}
			}
			b.hairpin[addr] = struct{}{}
			b.out.Hairpin = append(b.out.Hairpin, addr)
		}
	}
	return p
}

// UsableRanges returns the clusterset's ranges of which addresses may be clusterset IPs, without
// spaces around them. Connections to such a range are refused, so a malformed one must not cover
// other addresses.
func UsableRanges(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || prefix.Bits() == 0 || addresses.Unusable(prefix.Masked().Addr()) != "" {
			continue
		}
		out = append(out, prefix.Masked())
	}
	return out
}

// parseAddress returns an IP address, and why it cannot be used if it cannot. The agent refuses
// such addresses too; this check covers slices that another client wrote.
func parseAddress(text string) (addr netip.Addr, problem string) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, "is not an IP address"
	}
	return addr, addresses.Unusable(addr)
}
