//go:build linux

package relay

import (
	"errors"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// openTAP creates the device in the network namespace of this process, with the hardware address
// and MTU of the device beside it: packets for that device are accepted on this one too. The device
// is set up last, so that one that is up is complete.
func openTAP(o Options) (*os.File, net.HardwareAddr, error) {
	beside, err := netlink.LinkByName(o.Beside)
	if err != nil {
		return nil, nil, err
	}
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: o.Device},
		Mode:      netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_ONE_QUEUE, Queues: 1, NonPersist: true,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, nil, err
	}
	link, err := netlink.LinkByName(o.Device)
	if err != nil {
		return nil, nil, err
	}
	address := beside.Attrs().HardwareAddr
	// Without an address of its own the device sends no IPv6 router solicitations.
	const noAddress = "1"
	sysctl := os.WriteFile("/proc/sys/net/ipv6/conf/"+o.Device+"/addr_gen_mode", []byte(noAddress), 0)
	if errors.Is(sysctl, fs.ErrNotExist) { // a kernel without IPv6
		sysctl = nil
	}
	err = errors.Join(sysctl, netlink.LinkSetHardwareAddr(link, address), netlink.LinkSetMTU(link, beside.Attrs().MTU),
		netlink.LinkSetTxQLen(link, maxFrames))
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	return tap.Fds[0], address, err
}
