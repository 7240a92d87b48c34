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

// Family is the IP family of the clusters of a sandbox.
type Family string

// The families. In dual-stack clusters IPv4 is the primary one.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
	Dual Family = "dual"
)

// Limits of clusters per sandbox and of sandboxes per machine. They keep names and addresses short.
const (
	maxClusters = 8
	maxSlots    = 16
)

// clusterNames are the names of the clusters, in order. The first has the broker.
var clusterNames = [maxClusters]string{"east", "west", "north", "south", "coast", "island", "harbor", "delta"}

// sandboxName limits names so that every derived name is valid: the paths of the shims' sockets,
// which end in 64 digits, reach the kernel's limit of 107 characters.
var sandboxName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$`)

// plan holds the names, paths and addresses of a sandbox. They follow from its name, folders, slot
// and options alone.
type plan struct {
	name     string
	dir      string // for what is kept over a restart of the machine
	runDir   string // for what is not: sockets and the state of containers
	slot     int    // determines the addresses and the bridge; unique on the machine
	family   Family
	clusters []cluster
}

// cluster holds the names, paths and addresses of one cluster.
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

// versions returns the IP versions of the clusters, the primary one first.
func (p plan) versions() []int {
	switch p.family {
	case IPv6:
		return []int{6}
	case Dual:
		return []int{4, 6}
	}
	return []int{4}
}

// bridge returns the name of the link on the host that connects the nodes.
func (p plan) bridge() string { return fmt.Sprintf("seamark%d", p.slot) }

// hostIPs returns the addresses of the bridge, by which nodes reach the host.
func (p plan) hostIPs() []netip.Prefix {
	var ips []netip.Prefix
	for _, v := range p.versions() {
		ips = append(ips, p.nodeIP(v, 1))
	}
	return ips
}

// nodeIP returns an address in the network of the nodes: 172.30.SLOT.0/24 or fd5e:SLOT::/64.
func (p plan) nodeIP(version, host int) netip.Prefix {
	if version == 6 {
		return netip.PrefixFrom(ula(p.slot, 0, 0, host), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, byte(p.slot), byte(host)}), 24)
}

// podCIDR returns 10.200+SLOT.16*INDEX.0/20 or fd5e:SLOT:INDEX:1::/64.
func (p plan) podCIDR(version, index int) netip.Prefix {
	if version == 6 {
		return netip.PrefixFrom(ula(p.slot, index, 1, 0), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(200 + p.slot), byte(16 * index), 0}), 20)
}

// allPods returns the ranges that contain the pods of every cluster of the sandbox.
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

// serviceCIDR returns 10.220+SLOT.16*INDEX.0/20 or fd5e:SLOT:INDEX:2::/112.
func (p plan) serviceCIDR(version, index int) netip.Prefix {
	if version == 6 {
		return netip.PrefixFrom(ula(p.slot, index, 2, 0), 112)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(220 + p.slot), byte(16 * index), 0}), 20)
}

// ula returns fd5e:SLOT:INDEX:NET::HOST.
func ula(slot, index, network, host int) netip.Addr {
	var a [16]byte
	for i, part := range []int{0xfd5e, slot, index, network} {
		binary.BigEndian.PutUint16(a[2*i:], uint16(part))
	}
	binary.BigEndian.PutUint16(a[14:], uint16(host))
	return netip.AddrFrom16(a)
}

// find returns the cluster of a name, or an error that lists the clusters.
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

// node returns the name of the cluster's only node.
func (c cluster) node() string { return c.name + "-node" }

// nodeIP returns the node's primary address.
func (c cluster) nodeIP() netip.Addr { return c.nodeIPs[0].Addr() }

// server returns the URL of the API server for the host and for the pods of every cluster.
func (c cluster) server() string {
	return "https://" + net.JoinHostPort(c.nodeIP().String(), fmt.Sprint(apiserverPort))
}

// dnsIP returns the address of cluster DNS: the tenth of the service range, as with kubeadm.
func (c cluster) dnsIP(family int) netip.Addr { return nth(c.serviceCIDRs[family], 10) }

// ranges returns all addresses of the cluster: node, pods and services.
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

// nth returns the n-th address of a range.
func nth(prefix netip.Prefix, n int) netip.Addr {
	a := prefix.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// join returns addresses or ranges separated by commas, as flags take them.
func join[T fmt.Stringer](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, ",")
}

// addrs returns the addresses of prefixes.
func addrs(prefixes []netip.Prefix) []netip.Addr {
	list := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		list[i] = p.Addr()
	}
	return list
}
