// Package vip hands out clusterset IPs: addresses of this member's own blocks that no service of the clusterset uses.
//
// What is in use is learnt from all aggregates on the broker, whoever wrote them: a block may have belonged to another
// cluster before, and its services keep their addresses. Addresses rest as long as they can before they are used again,
// because clients may still hold what they resolved a while ago.
package vip

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Pool is the addresses of this member's blocks. It is safe for concurrent use. Taking and giving back an address costs the
// same whether ten or sixty thousand are in use.
type Pool struct {
	// Heal is told which services asked in vain when an address became free. It is called without a lock held.
	OnFreed func(services ...types.NamespacedName)

	mu     sync.Mutex
	blocks []*block
	// users counts who uses an address: aggregates, memories and reservations alike.
	claimCounts    map[netip.Addr]int
	claims   map[claim][]netip.Addr
	refused map[types.NamespacedName]struct{}
}

// claim is one reason for an address to be in use.
type claim struct {
	service types.NamespacedName
	kind     claimKind
}

type claimKind uint8

const (
	// published: an aggregate on the broker has it.
	published claimKind = iota
	// remembered: a ServiceImport of this cluster says that the aggregate had it.
	remembered
	// reserved: it was offered for a service and no aggregate shows it yet.
	reserved
)

// ExhaustedError tells that a member has no address left to give.
type ExhaustedError struct {
	// Block is the member's block of the family asked for, invalid when it has none.
	Block netip.Prefix
	// Used is how many of its addresses are in use.
	Used int
	IPv6 bool
}

func (e *ExhaustedError) Error() string {
	if !e.Block.IsValid() {
		family := "IPv4"
		if e.IPv6 {
			family = "IPv6"
		}
		return fmt.Sprintf("this cluster has no %s block for clusterset IPs: the broker's admin must invite it anew with one (seamark broker invite --clusterset-ip-cidr)", family)
	}
	return fmt.Sprintf("all %d addresses of this cluster's block %s are in use: unexport services that are not needed, "+
		"or have the broker's admin invite this cluster anew with a larger block (seamark broker invite --clusterset-ip-cidr)", e.Used, e.Block)
}

// NewPool returns a pool without blocks.
func NewPool() *Pool {
	return &Pool{claimCounts: map[netip.Addr]int{}, claims: map[claim][]netip.Addr{}, refused: map[types.NamespacedName]struct{}{}}
}

// SetBlocks says which blocks are this member's, one per address family. Blocks that stay keep their state.
func (p *Pool) SetBlocks(prefixes []netip.Prefix) {
	p.mu.Lock()
	var blocks []*block
	for _, prefix := range prefixes {
		i := slices.IndexFunc(p.blocks, func(b *block) bool { return b.prefix == prefix })
		if i >= 0 {
			blocks = append(blocks, p.blocks[i])
			continue
		}
		b := newBlock(prefix)
		for addr := range p.claimCounts {
			b.inUse += boolToInt(b.prefix.Contains(addr))
		}
		blocks = append(blocks, b)
	}
	p.blocks = blocks
	p.unlockAndNotify(true)
}

// Published says which addresses the aggregate of a service has; none when there is no aggregate any more. What was reserved for the
// service is free again: the aggregate has decided.
func (p *Pool) SetPublished(service types.NamespacedName, addrs []netip.Addr) {
	p.mu.Lock()
	freed := p.setClaim(claim{service, published}, addrs)
	if len(addrs) > 0 {
		freed = p.setClaim(claim{service, reserved}, nil) || freed
		delete(p.refused, service)
	}
	p.unlockAndNotify(freed)
}

// Remember says which addresses this cluster last saw in the aggregate of a service. They are not given to another service even when
// the broker has lost the aggregate: clients may still use them.
func (p *Pool) SetRemembered(service types.NamespacedName, addrs []netip.Addr) {
	p.mu.Lock()
	p.unlockAndNotify(p.setClaim(claim{service, remembered}, addrs))
}

// Release takes back what was offered for a service that needs nothing any more.
func (p *Pool) Release(service types.NamespacedName) {
	p.mu.Lock()
	delete(p.refused, service)
	p.unlockAndNotify(p.setClaim(claim{service, reserved}, nil))
}

// Offer reserves an address of a family for a service: the wanted one when it is this member's to give and free, else the one that has
// been free for longest. It offers the same again until Published or Release. Its error is an ExhaustedError; then Heal is
// told when it is worth asking again.
func (p *Pool) Reserve(service types.NamespacedName, ipv6 bool, wanted netip.Addr) (netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := claim{service, reserved}
	for _, addr := range p.claims[key] {
		if addr.Is6() == ipv6 {
			return addr, nil
		}
	}
	i := slices.IndexFunc(p.blocks, func(b *block) bool { return b.prefix.Addr().Is6() == ipv6 })
	if i < 0 {
		p.refused[service] = struct{}{}
		return netip.Addr{}, &ExhaustedError{IPv6: ipv6}
	}
	addr, ok := p.choose(p.blocks[i], service, wanted)
	if !ok {
		p.refused[service] = struct{}{}
		return netip.Addr{}, &ExhaustedError{Block: p.blocks[i].prefix, Used: p.blocks[i].inUse, IPv6: ipv6}
	}
	p.setClaim(key, append(slices.Clone(p.claims[key]), addr))
	return addr, nil
}

func (p *Pool) choose(b *block, service types.NamespacedName, wanted netip.Addr) (netip.Addr, bool) {
	if wanted.IsValid() && b.usable(wanted) && p.claimCounts[wanted] == p.claimsOf(service, wanted) {
		return wanted, true
	}
	return b.next(func(addr netip.Addr) bool { return p.claimCounts[addr] > 0 })
}

// ownUse is how many of an address' users are the service itself.
func (p *Pool) claimsOf(service types.NamespacedName, addr netip.Addr) int {
	n := 0
	for _, why := range []claimKind{published, remembered, reserved} {
		n += boolToInt(slices.Contains(p.claims[claim{service, why}], addr))
	}
	return n
}

// Use is how full a block is.
type Usage struct {
	Block netip.Prefix
	// Used and Size count addresses; Size is at most the largest int.
	Used, Size int
}

// Use tells how full each block is.
func (p *Pool) Usage() []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Usage, len(p.blocks))
	for i, b := range p.blocks {
		out[i] = Usage{Block: b.prefix, Used: b.inUse, Size: b.size()}
	}
	return out
}

// setClaim replaces a claim and tells whether that freed an address of this member's.
func (p *Pool) setClaim(key claim, addrs []netip.Addr) (freed bool) {
	old := p.claims[key]
	if slices.Equal(old, addrs) {
		return false
	}
	if len(addrs) == 0 {
		delete(p.claims, key)
	} else {
		p.claims[key] = slices.Clone(addrs)
	}
	for _, addr := range addrs {
		if p.claimCounts[addr]++; p.claimCounts[addr] == 1 {
			p.adjustInUse(addr, 1)
		}
	}
	for _, addr := range old {
		if p.claimCounts[addr]--; p.claimCounts[addr] == 0 {
			delete(p.claimCounts, addr)
			freed = p.adjustInUse(addr, -1) || freed
		}
	}
	return freed
}

// count keeps the blocks' numbers when an address comes into use or becomes free, and tells whether it is in one of them.
func (p *Pool) adjustInUse(addr netip.Addr, by int) bool {
	for _, b := range p.blocks {
		if b.prefix.Contains(addr) {
			b.inUse += by
			if by < 0 {
				b.release(addr)
			}
			return true
		}
	}
	return false
}

// healAndUnlock ends a change, and tells those who asked in vain if it may help them.
func (p *Pool) unlockAndNotify(freed bool) {
	var hungry []types.NamespacedName
	if freed && len(p.refused) > 0 {
		for service := range p.refused {
			hungry = append(hungry, service)
		}
		clear(p.refused)
	}
	heal := p.OnFreed
	p.mu.Unlock()
	if heal != nil && len(hungry) > 0 {
		heal(hungry...)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
