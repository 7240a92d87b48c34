// Package vip allocates clusterset IPs: addresses of this member's own blocks that no service of
// the clusterset uses.
//
// Addresses in use are learnt from all records on the broker, whichever member wrote them: a block
// may have belonged to another cluster before, and its services keep their addresses. The
// address that has been free for longest is used first, because clients may still use one that they
// resolved a while ago. A process does not know which addresses became free before it started, so
// each begins at another place.
package vip

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Pool holds the addresses of this member's blocks. It is safe for concurrent use. Reserving and
// releasing an address costs the same whether ten or sixty thousand are in use.
type Pool struct {
	// OnFreed is called when an address became free, with the services whose reservation failed
	// before. It is called without a lock held.
	OnFreed func(services ...types.NamespacedName)

	start  uint64 // see NewPool
	mu     sync.Mutex
	blocks []*block
	// claimants are the services that have claims on an address, with how many, of any kind.
	claimants map[netip.Addr]claimants
	claims    map[claim][]netip.Addr
	// refused are the services whose reservation failed.
	refused map[types.NamespacedName]struct{}
}

// claim is a reason for an address to be in use.
type claim struct {
	service types.NamespacedName
	kind    claimKind
	cluster string // whose record it is, if the kind is recorded
}

type claimKind uint8

const (
	// recorded: a record on the broker claims the address.
	recorded claimKind = iota
	// remembered: according to a ServiceImport of this cluster, the service had the address.
	remembered
	// reserved: the address was reserved for a service, and no record claims it yet.
	reserved
)

// ExhaustedError is returned if a member has no free address left.
type ExhaustedError struct {
	// Blocks are the member's blocks of the requested family.
	Blocks []netip.Prefix
	// Used is how many of their addresses are in use.
	Used int
	IPv6 bool
}

func (e *ExhaustedError) Error() string {
	if len(e.Blocks) == 0 {
		family := "IPv4"
		if e.IPv6 {
			family = "IPv6"
		}
		return fmt.Sprintf("this cluster has no %s block for clusterset IPs: "+
			"the broker's admin must add one (seamark cluster add-block)", family)
	}
	blocks := make([]string, len(e.Blocks))
	for i, b := range e.Blocks {
		blocks[i] = b.String()
	}
	return fmt.Sprintf("all %d addresses of this cluster's block %s are in use: unexport services that are not needed, "+
		"or have the broker's admin add a block (seamark cluster add-block)", e.Used, strings.Join(blocks, ", "))
}

// NewPool returns a pool without blocks. start chooses where in its blocks the search for free
// addresses begins. It should differ between processes: the lowest free address may have become
// free a moment ago, and another cluster may still use it.
func NewPool(start uint64) *Pool {
	return &Pool{
		start:     start,
		claimants: map[netip.Addr]claimants{}, claims: map[claim][]netip.Addr{},
		refused: map[types.NamespacedName]struct{}{},
	}
}

// SetBlocks sets the blocks of this member. Blocks that it had before keep their state.
func (p *Pool) SetBlocks(prefixes []netip.Prefix) {
	p.mu.Lock()
	var blocks []*block
	for _, prefix := range prefixes {
		i := slices.IndexFunc(p.blocks, func(b *block) bool { return b.prefix == prefix })
		if i >= 0 {
			blocks = append(blocks, p.blocks[i])
			continue
		}
		b := newBlock(prefix, p.start)
		for addr := range p.claimants {
			b.inUse += boolToInt(b.prefix.Contains(addr))
		}
		blocks = append(blocks, b)
	}
	p.blocks = blocks
	p.unlockAndNotify(true)
}

// SetRecorded sets the addresses that the record of a cluster claims for a service; none if the
// record was deleted.
func (p *Pool) SetRecorded(service types.NamespacedName, cluster string, addrs []netip.Addr) {
	p.mu.Lock()
	p.unlockAndNotify(p.setClaim(claim{service, recorded, cluster}, addrs))
}

// SetRemembered sets the addresses that this cluster last observed for a service. They are not
// allocated to another service even if the broker lost its records: clients may still use them.
func (p *Pool) SetRemembered(service types.NamespacedName, addrs []netip.Addr) {
	p.mu.Lock()
	p.unlockAndNotify(p.setClaim(claim{service: service, kind: remembered}, addrs))
}

// Release ends the reservation of a service that needs no address any more.
func (p *Pool) Release(service types.NamespacedName) {
	p.mu.Lock()
	delete(p.refused, service)
	p.unlockAndNotify(p.setClaim(claim{service: service, kind: reserved}, nil))
}

// Reserve reserves an address of a family for a service: the wanted one if no other service has it,
// else the one that has been free for longest of this member's first block with a free one. A
// wanted address may be from another block; the caller checks that it is a clusterset IP. Reserve
// returns the same address until Release. Its error is an ExhaustedError; then OnFreed is called
// when a retry may succeed.
func (p *Pool) Reserve(service types.NamespacedName, ipv6 bool, wanted netip.Addr) (netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := claim{service: service, kind: reserved}
	for _, addr := range p.claims[key] {
		if addr.Is6() == ipv6 {
			return addr, nil
		}
	}
	addr, err := p.choose(service, ipv6, wanted)
	if err != nil {
		p.refused[service] = struct{}{}
		return netip.Addr{}, err
	}
	p.setClaim(key, append(slices.Clone(p.claims[key]), addr))
	return addr, nil
}

func (p *Pool) choose(service types.NamespacedName, ipv6 bool, wanted netip.Addr) (netip.Addr, error) {
	unusable := func(b *block) bool { return b.prefix.Contains(wanted) && !b.usable(wanted) }
	if wanted.IsValid() && wanted.Is6() == ipv6 && !p.hasOtherClaimant(service, wanted) && !slices.ContainsFunc(p.blocks, unusable) {
		return wanted, nil
	}
	exhausted := &ExhaustedError{IPv6: ipv6}
	for _, b := range p.blocks {
		if b.prefix.Addr().Is6() != ipv6 {
			continue
		}
		if addr, ok := b.next(func(addr netip.Addr) bool { return len(p.claimants[addr]) > 0 }); ok {
			return addr, nil
		}
		exhausted.Blocks, exhausted.Used = append(exhausted.Blocks, b.prefix), exhausted.Used+b.inUse
	}
	return netip.Addr{}, exhausted
}

// hasOtherClaimant reports whether a service other than this one has a claim on an address.
func (p *Pool) hasOtherClaimant(service types.NamespacedName, addr netip.Addr) bool {
	all := p.claimants[addr]
	return len(all) > 1 || (len(all) == 1 && all[0].service != service)
}

// Usage is how many addresses of a block are in use.
type Usage struct {
	Block netip.Prefix
	// Used and Size count addresses; Size is at most the largest int.
	Used, Size int
}

// Usage returns the usage of each block.
func (p *Pool) Usage() []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Usage, len(p.blocks))
	for i, b := range p.blocks {
		out[i] = Usage{Block: b.prefix, Used: b.inUse, Size: b.size()}
	}
	return out
}

// setClaim replaces a claim and reports whether that freed an address of this member's blocks.
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
		if len(p.claimants[addr]) == 0 {
			p.adjustInUse(addr, 1)
		}
		p.claimants[addr] = p.claimants[addr].add(key.service)
	}
	for _, addr := range old {
		if left := p.claimants[addr].remove(key.service); len(left) > 0 {
			p.claimants[addr] = left
			continue
		}
		delete(p.claimants, addr)
		freed = p.adjustInUse(addr, -1) || freed
	}
	return freed
}

// claimants are the services that have claims on an address. It is a list, because there is hardly
// ever more than one, and a map would need ten times the memory.
type claimants []claimant

type claimant struct {
	service types.NamespacedName
	claims  int
}

func (c claimants) add(service types.NamespacedName) claimants {
	if i := c.find(service); i >= 0 {
		c[i].claims++
		return c
	}
	return append(c, claimant{service, 1})
}

func (c claimants) remove(service types.NamespacedName) claimants {
	i := c.find(service)
	if c[i].claims--; c[i].claims > 0 {
		return c
	}
	return slices.Delete(c, i, i+1)
}

func (c claimants) find(service types.NamespacedName) int {
	return slices.IndexFunc(c, func(other claimant) bool { return other.service == service })
}

// adjustInUse updates the count of addresses in use of the block that contains addr, and reports
// whether there is such a block.
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

// unlockAndNotify ends a change. If it freed an address, OnFreed is called with the services whose
// reservation failed before.
func (p *Pool) unlockAndNotify(freed bool) {
	var retry []types.NamespacedName
	if freed {
		retry = slices.SortedFunc(maps.Keys(p.refused), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
		clear(p.refused)
	}
	onFreed := p.OnFreed
	p.mu.Unlock()
	if onFreed != nil && len(retry) > 0 {
		onFreed(retry...)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
