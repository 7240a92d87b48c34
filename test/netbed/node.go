package netbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Node is a namespace that routes between its pods, as a node with a bridge CNI plugin does. It has
// an uplink with a default route, so that its own processes have a route to unused addresses.
type Node struct {
	*Namespace
	pods []*Pod
	// hostLinks are the ends of links to the host that are on the host.
	hostLinks []netlink.Link
}

// Addresses of a node, the first of each pod network being the bridge's.
var (
	NodeIPv4 = netip.MustParseAddr("172.30.0.1")
	NodeIPv6 = netip.MustParseAddr("fd30::1")
	podNet4  = netip.MustParsePrefix("10.77.0.0/16")
	podNet6  = netip.MustParsePrefix("fd77::/64")
	// tunnelNet4 and tunnelNet6 are the networks of the tunnel to a remote pod.
	tunnelNet4 = netip.MustParsePrefix("10.88.0.0/24")
	tunnelNet6 = netip.MustParsePrefix("fd88::/64")
)

// Pod is a namespace with one interface on its node's bridge.
type Pod struct {
	*Namespace
	Name       string
	IPv4, IPv6 netip.Addr
}

// IP returns the pod's address in one family.
func (p *Pod) IP(ipv6 bool) netip.Addr {
	if ipv6 {
		return p.IPv6
	}
	return p.IPv4
}

// NewNode creates a node without pods.
func NewNode() (*Node, error) {
	ns, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	n := &Node{Namespace: ns}
	if err := n.Do(setUpNode); err != nil {
		return nil, errors.Join(fmt.Errorf("set up a node: %w", err), n.Close())
	}
	return n, nil
}

func setUpNode() error {
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
		"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
	} {
		if err := sysctl(name, value); err != nil {
			return err
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "beyond"}
	for _, link := range []netlink.Link{bridge, uplink} {
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("add link %s: %w", link.Attrs().Name, err)
		}
	}
	if err := configureLink("br0", gateway(podNet4), podNet4.Bits(), gateway(podNet6), podNet6.Bits()); err != nil {
		return err
	}
	beyond, err := netlink.LinkByName("beyond")
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(beyond), configureLink("eth0", NodeIPv4, 24, NodeIPv6, 64)); err != nil {
		return err
	}
	return defaultRoutes("eth0", netip.MustParseAddr("172.30.0.254"), netip.MustParseAddr("fd30::fe"))
}

func gateway(p netip.Prefix) netip.Addr { return p.Addr().Next() }

// AddPod adds a pod to the node.
func (n *Node) AddPod(name string) (*Pod, error) {
	ns, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	number := len(n.pods) + 10
	p := &Pod{Namespace: ns, Name: name, IPv4: nthAddress(podNet4, number), IPv6: nthAddress(podNet6, number)}
	n.pods = append(n.pods, p)
	err = n.Do(func() error {
		outside := fmt.Sprintf("veth%d", number)
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: outside}, PeerName: "eth0", PeerNamespace: netlink.NsFd(p.FD())}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		// As CNI's bridge plugin does for Kubernetes: with br_netfilter a translated packet is
		// bridged, not routed.
		return errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetHairpin(link, true), netlink.LinkSetUp(link))
	})
	if err != nil {
		return nil, fmt.Errorf("connect pod %s: %w", name, err)
	}
	err = p.Do(func() error {
		if err := configureLink("eth0", p.IPv4, podNet4.Bits(), p.IPv6, podNet6.Bits()); err != nil {
			return err
		}
		return defaultRoutes("eth0", gateway(podNet4), gateway(podNet6))
	})
	if err != nil {
		return nil, fmt.Errorf("set up pod %s: %w", name, err)
	}
	return p, nil
}

// AddRemotePod adds a pod beyond a tunnel, as in another cluster: it has a route to the node's end
// of the tunnel, and none to other addresses of the node or to its pods. A node has at most one.
func (n *Node) AddRemotePod(name string) (*Pod, error) {
	ns, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	p := &Pod{Namespace: ns, Name: name, IPv4: nthAddress(tunnelNet4, 2), IPv6: nthAddress(tunnelNet6, 2)}
	n.pods = append(n.pods, p)
	err = n.Do(func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tunnel"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(p.FD())}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		return configureLink("tunnel", gateway(tunnelNet4), tunnelNet4.Bits(), gateway(tunnelNet6), tunnelNet6.Bits())
	})
	if err == nil {
		err = p.Do(func() error { return configureLink("eth0", p.IPv4, tunnelNet4.Bits(), p.IPv6, tunnelNet6.Bits()) })
	}
	if err != nil {
		return nil, fmt.Errorf("connect remote pod %s: %w", name, err)
	}
	return p, nil
}

// Close releases the node, its pods and its links to the host.
func (n *Node) Close() error {
	var errs []error
	for _, link := range n.hostLinks {
		errs = append(errs, netlink.LinkDel(link))
	}
	for _, p := range n.pods {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, n.Namespace.Close())...)
}

func nthAddress(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1], b[len(b)-2] = byte(n), byte(n>>8)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func configureLink(name string, v4 netip.Addr, bits4 int, v6 netip.Addr, bits6 int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(link), addAddress(link, v4, bits4, 0), addAddress(link, v6, bits6, unix.IFA_F_NODAD))
}

func addAddress(link netlink.Link, a netip.Addr, bits int, flags int) error {
	ipNet := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet, Flags: flags}); err != nil {
		return fmt.Errorf("add %s to %s: %w", ipNet, link.Attrs().Name, err)
	}
	return nil
}

func defaultRoutes(name string, gateways ...netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, gw := range gateways {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice()}); err != nil {
			return fmt.Errorf("add a default route through %s: %w", gw, err)
		}
	}
	return nil
}
