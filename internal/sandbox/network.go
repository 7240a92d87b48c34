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

// netnsDir is the folder of named network namespaces.
const netnsDir = "/run/netns"

// connect creates what is missing of the network of the sandbox: a bridge on the host, and for each
// cluster a network namespace with a veth to the bridge, IP forwarding, and routes to the pods and
// services of the other clusters.
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

// address returns an address for a link. IPv6 addresses skip duplicate address detection, because
// the plan gives each to one node only.
func address(ip netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(ip)}
	if ip.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// ipNet returns the prefix with its address unmasked, as links need it.
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

// ensureNetns creates a named namespace if it does not exist. A restart of the machine may leave a
// file without a namespace, which is replaced.
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

// ensureVeth connects a namespace to the bridge. When the end on the host exists, the one in the
// namespace does too.
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

// sysctls enable forwarding between pods, node and other clusters in the namespace of the calling
// thread.
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
		// The answer of a pod to another pod of the node that called it by a Service stays on the bridge.
		// Netfilter must see it to reverse the DNAT.
		{"bridge/bridge-nf-call-iptables", "1", true},
		{"bridge/bridge-nf-call-ip6tables", "1", true},
	} {
		err := os.WriteFile(pathPrefix+s.name, []byte(s.value), 0)
		if err != nil && (!s.optional || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	return nil
}

// configureNode sets the node's addresses and routes. It must run in the node's namespace.
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

// route is a route to a range through another node or the host.
type route struct {
	to  netip.Prefix
	via netip.Addr
}

// routes returns the routes of a node: to the pods and services of every other cluster through its
// node, and a default route to the host. The host does not forward, but without a default route
// processes of the node could not connect to addresses that are translated by NAT.
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
		// The kernel deletes the link with the namespace, but later.
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

// loadModules loads what a kernel may have as modules. Errors are ignored: the feature may be built
// in. If it is missing, a later step fails.
func loadModules() {
	for _, module := range []string{"bridge", "br_netfilter", "veth", "overlay", "nf_tables", "nf_conntrack"} {
		_ = exec.Command("modprobe", "--quiet", module).Run() //nolint:noctx // it ends at once
	}
}
