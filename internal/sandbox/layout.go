//go:build linux

package sandbox

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
)

// Family is which IP addresses the clusters of a sandbox have.
type Family string

// The families there are. In dual-stack clusters IPv4 comes first.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
	Dual Family = "dual"
)

// Limits of a machine full of sandboxes. They keep names and addresses short, and no machine that runs more is known.
const (
	maxClusters = 8
	maxSlots    = 16
)

// clusterNames are the names of clusters, in order. The first holds the broker.
var clusterNames = [maxClusters]string{"east", "west", "north", "south", "coast", "island", "harbor", "delta"}

// sandboxName keeps every derived name valid and short: the sockets of shims, which end in 64 digits, are at 107 characters, where the kernel ends.
var sandboxName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$`)

// plan is where everything of one sandbox is: decided once, from name, folders, slot and options, without looking at the machine.
type plan struct {
	name     string
	dir      string // what survives a restart of the machine
	runDir   string // what does not: sockets and the state of containers
	slot     int    // decides the addresses and the bridge; one per sandbox on a machine
	family   Family
	clusters []cluster
}

// cluster is where everything of one cluster is.
type cluster struct {
	name   string
	index  int // from 1
	dir    string
	runDir string
	netns  string
	veth   string // on the host; the other end is eth0 in netns
	// Addresses, one per family, in the family's order.
	nodeIPs      []netip.Prefix
	podCIDRs     []netip.Prefix
	serviceCIDRs []netip.Prefix
	region, zone string
}

func newPlan(name, dir, runDir string, slot, count int, family Family) plan {
	p := plan{name: name, dir: dir, runDir: runDir, slot: slot, family: family}
	for i := 1; i <= count; i++ {
		id := clusterNames[i-1]
		c := cluster{
			name: id, index: i,
			dir:    filepath.Join(dir, id),
			runDir: filepath.Join(runDir, id),
			netns:  "seamark-" + name + "-" + id,
			veth:   fmt.Sprintf("smk%dn%d", slot, i),
			region: "sandbox", zone: "zone-" + id,
		}
		for _, v := range p.versions() {
			c.nodeIPs = append(c.nodeIPs, p.nodeIP(v, 10+i))
			c.podCIDRs = append(c.podCIDRs, p.podCIDR(v, i))
			c.serviceCIDRs = append(c.serviceCIDRs, p.serviceCIDR(v, i))
		}
		p.clusters = append(p.clusters, c)
	}
	return p
}

// versions are the IP versions of the clusters, the primary one first.
func (p plan) versions() []int {
	switch p.family {
	case IPv6:
		return []int{6}
	case Dual:
		return []int{4, 6}
	}
	return []int{4}
}

// bridge is the name of the link on the host that connects the nodes.
func (p plan) bridge() string { return fmt.Sprintf("seamark%d", p.slot) }

// hostIPs are the addresses of the bridge, by which nodes know the host.
func (p plan) hostIPs() []netip.Prefix {
	var ips []netip.Prefix
	for _, v := range p.versions() {
		ips = append(ips, p.nodeIP(v, 1))
	}
	return ips
}

// nodeIP is an address in the network of the nodes: 172.30.SLOT.0/24 or fd5e:SLOT::/64.
func (p plan) nodeIP(version, host int) netip.Prefix {
	if version == 6 {
		return netip.PrefixFrom(ula(p.slot, 0, 0, host), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, byte(p.slot), byte(host)}), 24)
}

// podCIDR is 10.200+SLOT.16*INDEX.0/20 or fd5e:SLOT:INDEX:1::/64.
func (p plan) podCIDR(version, index int) netip.Prefix {
	if version == 6 {
		return netip.PrefixFrom(ula(p.slot, index, 1, 0), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(200 + p.slot), byte(16 * index), 0}), 20)
}

// allPods are the ranges that hold the pods of every cluster of the sandbox.
func (p plan) allPods() []netip.Prefix {
	var all []netip.Prefix
	for _, v := range p.versions() {
		if v == 6 {
			all = append(all, netip.PrefixFrom(ula(p.slot, 0, 0, 0), 32))
		} else {
			all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(200 + p.slot), 0, 0}), 16))
		}
	}
	return all
}

// serviceCIDR is 10.220+SLOT.16*INDEX.0/20 or fd5e:SLOT:INDEX:2::/112.
func (p plan) serviceCIDR(version, index int) netip.Prefix {
	if version == 6 {
		return netip.PrefixFrom(ula(p.slot, index, 2, 0), 112)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(220 + p.slot), byte(16 * index), 0}), 20)
}

// ula is fd5e:SLOT:INDEX:NET::HOST.
func ula(slot, index, network, host int) netip.Addr {
	var a [16]byte
	for i, part := range []int{0xfd5e, slot, index, network} {
		binary.BigEndian.PutUint16(a[2*i:], uint16(part))
	}
	binary.BigEndian.PutUint16(a[14:], uint16(host))
	return netip.AddrFrom16(a)
}

// find returns the cluster of a name, or says which there are.
func (p plan) find(name string) (cluster, error) {
	for _, c := range p.clusters {
		if c.name == name {
			return c, nil
		}
	}
	return cluster{}, fmt.Errorf("there is no cluster %q in sandbox %s: choose from %s", name, p.name, strings.Join(p.names(), ", "))
}

func (p plan) names() []string {
	names := make([]string, len(p.clusters))
	for i, c := range p.clusters {
		names[i] = c.name
	}
	return names
}

// node is the name of the cluster's only node.
func (c cluster) node() string { return c.name + "-node" }

// nodeIP is the node's primary address.
func (c cluster) nodeIP() netip.Addr { return c.nodeIPs[0].Addr() }

// server is the address of the API server, for the host and for every pod of every cluster.
func (c cluster) server() string {
	return "https://" + net.JoinHostPort(c.nodeIP().String(), fmt.Sprint(apiserverPort))
}

// dnsIP is the address of cluster DNS: the tenth of the first service range, as everywhere.
func (c cluster) dnsIP(family int) netip.Addr { return nth(c.serviceCIDRs[family], 10) }

// ranges are all addresses that belong to the cluster.
func (c cluster) ranges() []netip.Prefix {
	var all []netip.Prefix
	for _, ip := range c.nodeIPs {
		all = append(all, netip.PrefixFrom(ip.Addr(), ip.Addr().BitLen()))
	}
	all = append(all, c.podCIDRs...)
	return append(all, c.serviceCIDRs...)
}

func (c cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c cluster) log(component string) string { return c.path("logs", component+".log") }

func (c cluster) containerdSocket() string { return filepath.Join(c.runDir, "containerd.sock") }

// nth is the n-th address of a range.
func nth(prefix netip.Prefix, n int) netip.Addr {
	a := prefix.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// join writes addresses or ranges as flags take them.
func join[T fmt.Stringer](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, ",")
}

// addrs are prefixes without their lengths.
func addrs(prefixes []netip.Prefix) []netip.Addr {
	list := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		list[i] = p.Addr()
	}
	return list
}
