package vip

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// block allocates the addresses of a prefix: first those not used since this process started, in
// order, then released ones, the longest free first. Each address is checked once per use, so the
// cost does not grow with the number in use.
type block struct {
	prefix netip.Prefix
	// first and last are the offsets of the first and the last usable address. The search for
	// addresses that were not used yet begins at start and goes around; checked counts those that
	// were looked at.
	first, start, last, checked uint64
	// released are offsets of checked addresses that were released, the longest free first. Some
	// may be in use again: an address is not removed from here when it is claimed for another
	// reason.
	released []uint64
	queued   map[uint64]struct{} // the offsets in released
	inUse    int
}

// maxStart bounds where the search begins, so that addresses of large blocks stay short. It is a
// prime, so that times of whole seconds differ too.
const maxStart = 65521

// newBlock returns the block of a prefix. The search for free addresses begins at an offset that
// start chooses.
func newBlock(prefix netip.Prefix, start uint64) *block {
	b := &block{prefix: prefix.Masked(), queued: map[uint64]struct{}{}}
	bits := prefix.Addr().BitLen() - prefix.Bits()
	switch {
	case bits >= 63:
		b.last = math.MaxInt64 // far more than can ever be in use
	default:
		b.last = 1<<bits - 1
	}
	if bits >= 2 {
		// The first address is the network's and, in IPv6, the anycast address of its routers; the last
		// is IPv4's broadcast. Some systems treat them specially even where no interface has the prefix.
		b.first++
		b.last--
	}
	b.start = b.first + start%min(b.addresses(), maxStart)
	return b
}

// addresses returns how many addresses can be allocated.
func (b *block) addresses() uint64 { return b.last - b.first + 1 }

func (b *block) size() int {
	return int(min(b.addresses(), math.MaxInt64))
}

// usable reports whether this block allocates an address.
func (b *block) usable(addr netip.Addr) bool {
	if !b.prefix.Contains(addr) {
		return false
	}
	offset := b.offset(addr)
	return b.address(offset) == addr && offset >= b.first && offset <= b.last
}

// next returns a free address; ok is false if all are in use.
func (b *block) next(inUse func(netip.Addr) bool) (addr netip.Addr, ok bool) {
	for b.checked < b.addresses() {
		addr := b.address(b.first + (b.start-b.first+b.checked)%b.addresses())
		b.checked++
		if !inUse(addr) {
			return addr, true
		}
	}
	for len(b.released) > 0 {
		addr := b.address(b.released[0])
		delete(b.queued, b.released[0])
		b.released = b.released[1:]
		if !inUse(addr) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// release adds an address that became free to the end of the queue. One that has not been checked
// yet is found without that.
func (b *block) release(addr netip.Addr) {
	if !b.usable(addr) {
		return
	}
	offset := b.offset(addr)
	if _, queued := b.queued[offset]; !queued && (offset+b.addresses()-b.start)%b.addresses() < b.checked {
		b.queued[offset] = struct{}{}
		b.released = append(b.released, offset)
	}
}

// address returns the address at an offset. Blocks are aligned, so the offset never carries beyond
// the low 64 bits.
func (b *block) address(offset uint64) netip.Addr {
	if b.prefix.Addr().Is4() {
		raw := b.prefix.Addr().As4()
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])|uint32(offset))
		return netip.AddrFrom4(raw)
	}
	raw := b.prefix.Addr().As16()
	binary.BigEndian.PutUint64(raw[8:], binary.BigEndian.Uint64(raw[8:])|offset)
	return netip.AddrFrom16(raw)
}

func (b *block) offset(addr netip.Addr) uint64 {
	if addr.Is4() {
		low, base := addr.As4(), b.prefix.Addr().As4()
		return uint64(binary.BigEndian.Uint32(low[:]) - binary.BigEndian.Uint32(base[:]))
	}
	low, base := addr.As16(), b.prefix.Addr().As16()
	return binary.BigEndian.Uint64(low[8:]) - binary.BigEndian.Uint64(base[8:])
}
