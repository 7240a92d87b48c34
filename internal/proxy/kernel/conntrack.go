package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// DeleteStaleUDP deletes tracked UDP connections to the given frontends whose endpoint is not one
// of the frontend's. TCP clients notice that their server is gone; UDP clients that go on sending
// would keep the connection for ever. It returns how many it deleted, and fails if connections
// cannot be listed or one cannot be deleted.
func (t *Table) DeleteStaleUDP(frontends []ruleset.Frontend, endpoints func(ruleset.Frontend) []netip.AddrPort) (int, error) {
	stale := map[bool]staleUDP{}
	for _, f := range frontends {
		if f.Protocol != ruleset.UDP {
			continue
		}
		if stale[f.VIP.Is6()] == nil {
			stale[f.VIP.Is6()] = staleUDP{}
		}
		current := map[netip.AddrPort]struct{}{}
		for _, e := range endpoints(f) {
			current[e] = struct{}{}
		}
		stale[f.VIP.Is6()][netip.AddrPortFrom(f.VIP, f.Port)] = current
	}
	if len(stale) == 0 {
		return 0, nil
	}
	handle, err := t.conntrackHandle()
	if err != nil {
		return 0, fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	var deleted int
	var errs []error
	for ipv6, filter := range stale {
		family := netlink.InetFamily(unix.AF_INET)
		if ipv6 {
			family = unix.AF_INET6
		}
		n, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter)
		deleted += int(n)
		if err != nil {
			errs = append(errs, fmt.Errorf("delete tracked UDP connections of removed endpoints: %w", err))
		}
	}
	return deleted, errors.Join(errs...)
}

func (t *Table) conntrackHandle() (*netlink.Handle, error) {
	if t.netns == 0 {
		return netlink.NewHandle(unix.NETLINK_NETFILTER)
	}
	return netlink.NewHandleAt(netns.NsHandle(t.netns), unix.NETLINK_NETFILTER)
}

// staleUDP are frontends with their current endpoints.
type staleUDP map[netip.AddrPort]map[netip.AddrPort]struct{}

// MatchConntrackFlow reports whether a connection goes to one of the frontends but to none of its
// endpoints.
func (s staleUDP) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != uint8(ruleset.UDP) {
		return false
	}
	vip, _ := netip.AddrFromSlice(flow.Forward.DstIP)
	current, known := s[netip.AddrPortFrom(vip.Unmap(), flow.Forward.DstPort)]
	if !known {
		return false
	}
	endpoint, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
	_, ok := current[netip.AddrPortFrom(endpoint.Unmap(), flow.Reverse.SrcPort)]
	return !ok
}
