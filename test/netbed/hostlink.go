package netbed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Networks of links to the host are taken from 198.18.0.0/15, which RFC 2544 reserves for tests of
// network devices, so that they are not in use. Several test binaries run on one machine, so each
// link has a network of its own.
const (
	hostLinkBits     = 30 // the host, the node, and the addresses that a network cannot use
	hostLinkNetworks = 1 << (hostLinkBits - 15)
)

// LinkToHost connects the node to the network namespace of this process, and returns the node's
// address on that link. Processes of the host can connect to it, an API server for example. The
// link is removed with the node: by Close, or by the kernel when this process ends without it.
func (n *Node) LinkToHost() (netip.Addr, error) {
	network, err := freeHostNetwork()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("link a node to the host: %w", err)
	}
	onHost := network.Addr().Next()
	onNode := onHost.Next()
	link := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("seamark-%06x", rand.Uint32N(1<<24))},
		PeerName:  "host", PeerNamespace: netlink.NsFd(n.FD()),
	}
	if err := netlink.LinkAdd(link); err != nil {
		return netip.Addr{}, fmt.Errorf("add link %s on the host: %w", link.Name, err)
	}
	n.hostLinks = append(n.hostLinks, link)
	err = n.Do(func() error {
		peer, err := netlink.LinkByName(link.PeerName)
		if err != nil {
			return err
		}
		return errors.Join(addAddress(peer, onNode, hostLinkBits, 0), netlink.LinkSetUp(peer))
	})
	if err := errors.Join(err, addAddress(link, onHost, hostLinkBits, 0), netlink.LinkSetUp(link)); err != nil {
		return netip.Addr{}, fmt.Errorf("set up link %s between the host and a node: %w", link.Name, err)
	}
	return onNode, nil
}

// freeHostNetwork returns a network for a link that no other link of the host has.
func freeHostNetwork() (netip.Prefix, error) {
	used, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list the addresses of the host: %w", err)
	}
	for range 100 {
		number := rand.Uint32N(hostLinkNetworks) << (32 - hostLinkBits)
		first := netip.AddrFrom4([4]byte{198, 18 + byte(number>>16), byte(number >> 8), byte(number)})
		network := netip.PrefixFrom(first, hostLinkBits)
		if !overlapsAny(network, used) {
			return network, nil
		}
	}
	return netip.Prefix{}, errors.New("no network in 198.18.0.0/15 is free: the host has links there")
}

func overlapsAny(network netip.Prefix, used []netlink.Addr) bool {
	for _, a := range used {
		addr, ok := netip.AddrFromSlice(a.IP)
		ones, _ := a.Mask.Size()
		if ok && network.Overlaps(netip.PrefixFrom(addr.Unmap(), ones)) {
			return true
		}
	}
	return false
}
