// Package kernel manages the data plane's nftables table: it creates the rules, applies the changes
// of package ruleset, and reads the table back.
//
// The path of a packet to a VIP, for each address family:
//
//	prerouting, output   VIP . protocol . port ─► services ─► class ─► classes ─► goto its chain
//	  pick<n>            VIP . protocol . port . random below n ─► endpoints ─► dnat
//	  keep<n>-<t>s       client . VIP . protocol . port ─► clients ─► in members? ─► dnat;
//	                     else pick one of n, remember it for t seconds ─► dnat
//	filter-*             a new connection, still to a VIP or into the ranges? ─► goto refuse
//	  refuse             drop if silent, else reject
//	postrouting          through a VIP, from an endpoint to itself or from a client
//	                     that the policy names? ─► masquerade
//
// There is one chain for each class, which is a number of endpoints and an affinity timeout, and
// none for each service. rules.go has the rules and layout.go the sets and chains.
//
// The package uses netlink and needs no nft program, so the image has none. It needs CAP_NET_ADMIN
// and nothing else. Measured with test/bench/dataplane on kernel 6.18: a change of one service
// takes 5 to 6 ms, with 10 services as with 10,000, and is in force after one or two; starting nft
// alone takes ten. Loading 10,000 services with 50,000 endpoints takes 0.2 s.
package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

const (
	// perMessage is how many elements go into one netlink message, whose attributes may be 64 KiB
	// long.
	perMessage = 400
	// sendBuffer holds the largest transaction, about 100 bytes for each element. The kernel
	// allocates only what is used.
	sendBuffer = 512 << 20
	readBuffer = 8 << 20
)

// Table is Seamark's table in one network namespace. It is not safe for concurrent use.
type Table struct {
	layout     *layout
	netns      int
	masquerade Masquerade
	ranges     []netip.Prefix
}

// Open returns the table of the network namespace with the given file descriptor, or of this
// process's if it is zero. It does not access the kernel yet.
func Open(netns int, masquerade Masquerade) *Table {
	return &Table{layout: newLayout(masquerade, nil), netns: netns, masquerade: masquerade}
}

// SetRanges sets the clusterset's ranges and reports whether they changed. They are part of the
// rules: a table with other ranges is replaced by the next Apply after Read.
func (t *Table) SetRanges(ranges []netip.Prefix) bool {
	if slices.Equal(t.ranges, ranges) {
		return false
	}
	t.layout, t.ranges = newLayout(t.masquerade, ranges), slices.Clone(ranges)
	return true
}

// connect opens a new socket for each exchange: after a failed transaction the kernel may send
// messages that the library does not read.
func (t *Table) connect() (*nftables.Conn, error) {
	return nftables.New(nftables.WithNetNSFd(t.netns), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(sendBuffer), c.SetReadBuffer(readBuffer))
	}))
}

// Apply applies the changes in one transaction: all of them take effect between two packets, or
// none. With replace, the same transaction recreates the table, and the changes must be its whole
// content. Connections are not touched.
//
// It fails if the kernel lacks a feature that the rules need, without CAP_NET_ADMIN, and if the
// table differs from what the changes were computed for. Call Read again after an error.
func (t *Table) Apply(c ruleset.Changes, replace bool) error {
	conn, err := t.connect()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	if replace {
		if err := t.create(conn); err != nil {
			return err
		}
	}
	if err := t.stage(conn, c); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("apply %d deletions and %d additions to table inet %s: %w%s",
			len(c.Delete), len(c.Add), TableName, err, permissionHint(err))
	}
	return nil
}

func permissionHint(err error) string {
	if errors.Is(err, os.ErrPermission) {
		return "; the process needs CAP_NET_ADMIN"
	}
	return ""
}

// create stages an empty table in place of one with the same name.
func (t *Table) create(conn *nftables.Conn) error {
	l := t.layout
	conn.AddTable(l.table) // so that the deletion finds a table
	conn.DelTable(l.table)
	conn.AddTable(l.table)
	for _, f := range l.families {
		for _, set := range f.allSets() {
			set.ID = 0
			if err := conn.AddSet(set, nil); err != nil {
				return fmt.Errorf("declare set %s: %w", set.Name, err)
			}
		}
	}
	for _, c := range l.chains {
		conn.AddChain(c)
	}
	conn.AddChain(l.fingerprintChain)
	for _, r := range l.rules {
		conn.AddRule(r)
	}
	return nil
}

func (t *Table) stage(conn *nftables.Conn, c ruleset.Changes) error {
	if err := t.stageElements(c.Delete, conn.SetDeleteElements); err != nil {
		return err
	}
	for _, class := range c.NewClasses {
		conn.AddChain(t.layout.classChain(class))
		for _, r := range t.layout.classRules(class) {
			conn.AddRule(r)
		}
		if err := conn.SetAddElements(t.layout.family(class.IPv6).classes, []nftables.SetElement{t.layout.classElement(class)}); err != nil {
			return fmt.Errorf("add class %+v: %w", class, err)
		}
	}
	if err := t.stageElements(c.Add, conn.SetAddElements); err != nil {
		return err
	}
	for _, class := range c.OldClasses {
		element := []nftables.SetElement{{Key: []byte(class.Key())}}
		if err := conn.SetDeleteElements(t.layout.family(class.IPv6).classes, element); err != nil {
			return fmt.Errorf("delete class %+v: %w", class, err)
		}
		conn.DelChain(t.layout.classChain(class))
	}
	return nil
}

// stageElements stages elements set by set, in messages that are short enough. It converts them one
// message at a time: the library's form takes five times the memory.
func (t *Table) stageElements(all []ruleset.Element, do func(*nftables.Set, []nftables.SetElement) error) error {
	bySet := map[ruleset.Set][]int{}
	for i := range all {
		bySet[all[i].Set] = append(bySet[all[i].Set], i)
	}
	message := make([]nftables.SetElement, 0, min(perMessage, len(all)))
	for set, numbers := range bySet {
		target := t.layout.family(set.IPv6).sets[set.Kind]
		for chunk := range slices.Chunk(numbers, perMessage) {
			message = message[:0]
			for _, i := range chunk {
				e := &all[i]
				message = append(message, nftables.SetElement{Key: []byte(e.Key), Val: []byte(e.Data()), Comment: e.Comment()})
			}
			if err := do(target, message); err != nil {
				return fmt.Errorf("change set %s: %w", target.Name, err)
			}
		}
	}
	return nil
}

// Remove deletes the table if there is one. Connections to VIPs fail after that.
func (t *Table) Remove() error {
	conn, err := t.connect()
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	conn.AddTable(t.layout.table)
	conn.DelTable(t.layout.table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove table inet %s: %w%s", TableName, err, permissionHint(err))
	}
	return nil
}
