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

// ForgetUDP deletes the tracked UDP connections to the given frontends that lead elsewhere than to one of the frontend's
// endpoints. A TCP client notices that its server is gone; a UDP client that goes on sending would send there for ever. It returns how
// many it deleted, and fails when the connections cannot be listed or one of them cannot be deleted.
func (t *Table) DeleteStaleUDP(frontends []ruleset.Frontend, endpoints func(ruleset.Frontend) []netip.AddrPort) (int, error) {
	stale := map[bool]staleUDP{}
	for _, f := range frontends {
		if f.Protocol != ruleset.UDP {
			continue
		}
		if stale[f.VIP.Is6()] == nil {
			stale[f.VIP.Is6()] = staleUDP{}
		}
		alive := map[netip.AddrPort]struct{}{}
		for _, e := range endpoints(f) {
			alive[e] = struct{}{}
		}
		stale[f.VIP.Is6()][netip.AddrPortFrom(f.VIP, f.Port)] = alive
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

// staleUDP are frontends with the endpoints a connection may lead to.
type staleUDP map[netip.AddrPort]map[netip.AddrPort]struct{}

// MatchConntrackFlow tells a connection to one of the frontends that leads elsewhere.
func (s staleUDP) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != uint8(ruleset.UDP) {
		return false
	}
	vip, _ := netip.AddrFromSlice(flow.Forward.DstIP)
	alive, ours := s[netip.AddrPortFrom(vip.Unmap(), flow.Forward.DstPort)]
	if !ours {
		return false
	}
	endpoint, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
	_, ok := alive[netip.AddrPortFrom(endpoint.Unmap(), flow.Reverse.SrcPort)]
	return !ok
}
