package dns

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seamark-dev/seamark/internal/dns/zone"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// setUnreachable replaces the clusters that the agent cannot reach, and reports whether they
// changed. It marks the services that have endpoints in a cluster for which that changed.
func (s *state) setUnreachable(now reachable.Unreachables) (changed bool) {
	lower := make(reachable.Unreachables, len(now)) // as in reduced slices
	for key, since := range now {
		lower[reachable.Key{Cluster: strings.ToLower(key.Cluster), Family: key.Family}] = since
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clusters := s.unreachable.Changed(lower)
	s.unreachable = lower
	if len(clusters) == 0 {
		return false
	}
	for _, h := range s.slices {
		if h.slice != nil && clusters[sourceOf(h.slice)] {
			s.markDirty(h.key)
		}
	}
	return true
}

// sourceOf returns from which cluster a slice is, and its family, which is that of its endpoints.
// The family of a slice without any is empty: no answer depends on it.
func sourceOf(s *zone.Slice) reachable.Key {
	return reachable.Key{Cluster: s.Cluster, Family: corev1.IPFamily(familyOf(s))}
}

func familyOf(s *zone.Slice) discoveryv1.AddressType {
	switch {
	case len(s.Endpoints) == 0:
		return ""
	case s.Endpoints[0].Addr.Is4():
		return discoveryv1.AddressTypeIPv4
	default:
		return discoveryv1.AddressTypeIPv6
	}
}

// leaveOutUnreachable is reachable.LeaveOut for reduced slices, which have only ready
// endpoints. It changes neither the list nor its slices.
func leaveOutUnreachable(all []*zone.Slice, unreachable reachable.Unreachables) []*zone.Slice {
	isUnreachable := func(s *zone.Slice) bool { return unreachable.Has(sourceOf(s)) }
	if len(unreachable) == 0 || !slices.ContainsFunc(all, isUnreachable) {
		return all
	}
	served := reachable.ServedPorts{}
	for _, s := range all {
		if !isUnreachable(s) { // one without endpoints has no family, so it serves nothing
			for _, p := range portsOf(s) {
				served[p] = true
			}
		}
	}
	var out []*zone.Slice
	for _, s := range all {
		if isUnreachable(s) {
			s = withoutPorts(s, served)
		}
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// portsOf returns the ports of a slice, in their order: one without a protocol if it has none.
func portsOf(s *zone.Slice) []reachable.ServedPort {
	if len(s.Ports) == 0 {
		return []reachable.ServedPort{{Family: familyOf(s)}}
	}
	out := make([]reachable.ServedPort, len(s.Ports))
	for i, p := range s.Ports {
		out[i] = reachable.ServedPort{Family: familyOf(s), Name: p.Name, Protocol: corev1.Protocol(p.Protocol)}
	}
	return out
}

// withoutPorts returns a slice without the ports that are served, nil if none are left.
func withoutPorts(s *zone.Slice, served reachable.ServedPorts) *zone.Slice {
	left := *s
	left.Ports = nil
	for i, p := range portsOf(s) {
		switch {
		case served[p]:
		case len(s.Ports) == 0:
			return s
		default:
			left.Ports = append(left.Ports, s.Ports[i])
		}
	}
	if len(left.Ports) == 0 {
		return nil
	}
	return &left
}
