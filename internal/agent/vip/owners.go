package vip

import (
	"net/netip"
	"slices"
	"sync"
)

// Owners knows which member owns which block of clusterset IPs. It is safe for concurrent use.
// Looking up an address costs the same for ten members and a thousand: blocks have few lengths.
type Owners struct {
	mu      sync.RWMutex
	byBlock map[netip.Prefix]string
	blocks  map[string][]netip.Prefix
	lengths map[int]int // how many blocks have a prefix of this length
}

// NewOwners returns Owners without members.
func NewOwners() *Owners {
	return &Owners{byBlock: map[netip.Prefix]string{}, blocks: map[string][]netip.Prefix{}, lengths: map[int]int{}}
}

// Set sets the blocks of a member; none if it is a member no longer.
func (o *Owners) Set(member string, blocks []netip.Prefix) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Equal(o.blocks[member], blocks) {
		return
	}
	for _, b := range o.blocks[member] {
		if o.lengths[b.Bits()]--; o.lengths[b.Bits()] == 0 {
			delete(o.lengths, b.Bits())
		}
		if o.byBlock[b] == member {
			delete(o.byBlock, b)
		}
	}
	delete(o.blocks, member)
	if len(blocks) == 0 {
		return
	}
	o.blocks[member] = slices.Clone(blocks)
	for _, b := range blocks {
		o.byBlock[b] = member
		o.lengths[b.Bits()]++
	}
}

// Of returns the member whose block contains an address, "" if there is none.
func (o *Owners) Of(addr netip.Addr) string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for bits := range o.lengths {
		if prefix, err := addr.Prefix(bits); err == nil {
			if owner, ok := o.byBlock[prefix]; ok {
				return owner
			}
		}
	}
	return ""
}
