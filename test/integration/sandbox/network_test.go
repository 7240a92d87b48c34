//go:build linux

// Package sandbox_test checks the faults of a sandbox's network in the kernel: two nodes made of
// network namespaces, real sockets, the rules that a sandbox applies. It needs root.
package sandbox_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/test/netbed"
)

const device = "eth0"

// node is a namespace that stands for the node of a cluster.
type node struct {
	*netbed.Namespace
	t     *testing.T
	addrs map[string]netip.Addr // by family
}

var families = []string{"IPv4", "IPv6"}

// newNodes returns two nodes that a cable connects.
func newNodes(t *testing.T) (west, north *node) {
	t.Helper()
	west, north = newNode(t, "192.0.2.12", "2001:db8::12"), newNode(t, "192.0.2.13", "2001:db8::13")
	must(t, west.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device, PeerNamespace: netlink.NsFd(north.FD()),
		})
	}))
	for _, n := range []*node{west, north} {
		must(t, n.Do(n.configure))
	}
	return west, north
}

func newNode(t *testing.T, v4, v6 string) *node {
	t.Helper()
	ns, err := netbed.NewNamespace()
	must(t, err)
	t.Cleanup(func() { must(t, ns.Close()) })
	return &node{ns, t, map[string]netip.Addr{"IPv4": netip.MustParseAddr(v4), "IPv6": netip.MustParseAddr(v6)}}
}

func (n *node) configure() error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	errs := []error{netlink.LinkSetUp(link)}
	for _, a := range n.addrs {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen()-8, a.BitLen())}}
		if a.Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		errs = append(errs, netlink.AddrAdd(link, address))
	}
	return errors.Join(errs...)
}

// ranges returns the addresses of the node, as a fault names them.
func (n *node) ranges() (list []netip.Prefix) {
	for _, family := range families {
		a := n.addrs[family]
		list = append(list, netip.PrefixFrom(a, a.BitLen()))
	}
	return list
}

// apply replaces the rules of the node.
func (n *node) apply(rules ...fault.Rule) {
	n.t.Helper()
	script := fault.Ruleset(device, rules)
	must(n.t, n.Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s\n%s", err, out, script)
		}
		return nil
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flow sends numbered datagrams from one node to another. No other traffic is between the two
// sockets, and the kernel does not lose a datagram: the buffer of the receiver is large enough.
type flow struct {
	t        *testing.T
	from, to *net.UDPConn
}

// received is a datagram that arrived.
type received struct {
	number uint32
	after  time.Duration // since it was sent
}

func newFlow(t *testing.T, from, to *node, family string) *flow {
	t.Helper()
	f := &flow{t: t}
	must(t, to.Do(func() (err error) {
		f.to, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.addrs[family], 0)))
		return err
	}))
	raw, err := f.to.SyscallConn()
	must(t, err)
	const enough = 64 << 20 // for all datagrams of a test; the kernel counts 1 KiB for each
	var set error
	must(t, raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, enough) }))
	must(t, set)
	must(t, from.Do(func() (err error) {
		f.from, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(f.to.LocalAddr().(*net.UDPAddr).AddrPort()))
		return err
	}))
	t.Cleanup(func() { must(t, errors.Join(f.from.Close(), f.to.Close())) })
	return f
}

// epoch is what the time in datagrams counts from.
var epoch = time.Now()

// send sends datagrams with the numbers first to first+count-1.
func (f *flow) send(first, count uint32) {
	f.t.Helper()
	for i := range count {
		data := binary.BigEndian.AppendUint32(nil, first+i)
		_, err := f.from.Write(binary.BigEndian.AppendUint64(data, uint64(time.Since(epoch))))
		must(f.t, err)
	}
}

// receive returns the datagrams up to the one with a number, which must arrive.
func (f *flow) receive(last uint32) (all []received) {
	f.t.Helper()
	buffer := make([]byte, 64)
	for {
		must(f.t, f.to.SetReadDeadline(time.Now().Add(time.Minute)))
		n, err := f.to.Read(buffer)
		must(f.t, err)
		if n != 12 {
			f.t.Fatalf("a datagram of %d bytes", n)
		}
		sent := time.Duration(binary.BigEndian.Uint64(buffer[4:]))
		all = append(all, received{binary.BigEndian.Uint32(buffer), time.Since(epoch) - sent})
		if all[len(all)-1].number == last {
			return all
		}
	}
}
