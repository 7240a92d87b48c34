//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where named network namespaces are.
const netnsDir = "/run/netns"

// connect makes the network of the sandbox, or what is missing of it: a bridge on the host, and for each cluster a network namespace with a
// veth to the bridge, forwarding on and routes to the pods and services of the others.
func (p plan) connect() error {
	bridge, err := p.ensureBridge()
	if err != nil {
		return fmt.Errorf("bridge %s: %w", p.bridge(), err)
	}
	for _, c := range p.clusters {
		if err := p.connectCluster(c, bridge); err != nil {
			return fmt.Errorf("network of cluster %s: %w", c.name, err)
		}
	}
	return nil
}

func (p plan) ensureBridge() (netlink.Link, error) {
	link, err := netlink.LinkByName(p.bridge())
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = p.bridge()
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
			return nil, err
		}
		link, err = netlink.LinkByName(p.bridge())
	}
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, err
	}
	for _, ip := range p.hostIPs() {
		if err := netlink.AddrReplace(link, address(ip)); err != nil {
			return nil, fmt.Errorf("address %s: %w", ip, err)
		}
	}
	return link, nil
}

// address is one to give to a link. IPv6 ones are used without asking the neighbours first, who cannot have them.
func address(ip netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(ip)}
	if ip.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// ipNet keeps the address: unlike a route, it is not masked.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (p plan) connectCluster(c cluster, bridge netlink.Link) error {
	if err := ensureNetns(c.netns); err != nil {
		return err
	}
	if err := ensureVeth(c, bridge); err != nil {
		return err
	}
	return inNetns(c.netns, func() error {
		if err := sysctls(); err != nil {
			return err
		}
		return p.configureNode(c)
	})
}

// ensureNetns makes a named namespace. A file without a namespace behind it is what a restart of the machine may leave.
func ensureNetns(name string) error {
	var at unix.Statfs_t
	err := unix.Statfs(filepath.Join(netnsDir, name), &at)
	if err == nil && at.Type == unix.NSFS_MAGIC {
		return nil
	}
	if err == nil {
		if err := os.Remove(filepath.Join(netnsDir, name)); err != nil {
			return err
		}
	}
	return onThread(func() error {
		handle, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		return handle.Close()
	})
}

// ensureVeth connects a namespace to the bridge. The end on the host exists exactly while the one in the namespace does.
func ensureVeth(c cluster, bridge netlink.Link) error {
	if _, err := netlink.LinkByName(c.veth); err == nil {
		return nil
	}
	handle, err := netns.GetFromName(c.netns)
	if err != nil {
		return err
	}
	defer handle.Close() //nolint:errcheck // only read
	attributes := netlink.NewLinkAttrs()
	attributes.Name = c.veth
	attributes.MasterIndex = bridge.Attrs().Index
	attributes.Flags = net.FlagUp
	veth := &netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(handle)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s: %w", c.veth, err)
	}
	return netlink.LinkSetUp(veth)
}

// sysctls make the namespace of the calling thread forward between pods, node and others.
func sysctls() error {
	const pathPrefix = "/proc/sys/net/"
	for _, s := range []struct {
		name, value string
		optional    bool
	}{
		{"ipv4/ip_forward", "1", false},
		{"ipv4/conf/all/rp_filter", "0", false},
		{"ipv4/conf/default/rp_filter", "0", false},
		{"ipv6/conf/all/forwarding", "1", true},
		{"ipv6/conf/default/accept_dad", "0", true},
		{"ipv6/conf/all/accept_dad", "0", true},
		// A pod that reaches another of the same node by a service gets its answers over the bridge, which must turn the addresses back.
		{"bridge/bridge-nf-call-iptables", "1", true},
		{"bridge/bridge-nf-call-ip6tables", "1", true},
	} {
		err := os.WriteFile(pathPrefix+s.name, []byte(s.value), 0)
		if err != nil && (!s.optional || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("setting %s: %w", s.name, err)
		}
	}
	return nil
}

// configureNode gives the node its addresses and routes. It runs in the node's namespace.
func (p plan) configureNode(c cluster) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkSetUp(eth0)); err != nil {
		return err
	}
	for _, ip := range c.nodeIPs {
		if err := netlink.AddrReplace(eth0, address(ip)); err != nil {
			return fmt.Errorf("address %s: %w", ip, err)
		}
	}
	for _, r := range p.routes(c) {
		route := &netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: ipNet(r.to), Gw: r.via.AsSlice()}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %s: %w", r.to, err)
		}
	}
	return nil
}

// route leads to a range through a neighbour.
type route struct {
	to  netip.Prefix
	via netip.Addr
}

// routes are those of a node: to the pods and services of every other cluster through its node, and all else to the host. Nothing answers
// there, but without such a route processes of the node could not send to addresses that are translated on their way out.
func (p plan) routes(c cluster) []route {
	var routes []route
	for family, host := range p.hostIPs() {
		everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if host.Addr().Is6() {
			everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		routes = append(routes, route{everything, host.Addr()})
		for _, other := range p.clusters {
			if other.index != c.index {
				via := other.nodeIPs[family].Addr()
				routes = append(routes, route{other.podCIDRs[family], via}, route{other.serviceCIDRs[family], via})
			}
		}
	}
	return routes
}

// disconnect removes the namespaces and links of the sandbox, as far as they exist.
func (p plan) disconnect() error {
	var errs []error
	for _, c := range p.clusters {
		// The link goes with the namespace, but only when the kernel gets to it.
		errs = append(errs, deleteLink(c.veth))
		path := filepath.Join(netnsDir, c.netns)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not mounted
			errs = append(errs, fmt.Errorf("network namespace %s: %w", c.netns, err))
		}
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(append(errs, deleteLink(p.bridge()))...)
}

func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return nil
}

// loadModules asks for what a kernel may have as modules. A kernel that has it built in, or not at all, is told apart later, by what fails.
func loadModules() {
	for _, module := range []string{"bridge", "br_netfilter", "veth", "overlay", "nf_tables", "nf_conntrack"} {
		_ = exec.Command("modprobe", "--quiet", module).Run() //nolint:noctx // it ends by itself, at once
	}
}
