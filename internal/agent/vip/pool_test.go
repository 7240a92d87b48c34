package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func service(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

func pool(blocks ...string) *Pool {
	p := NewPool(0)
	var prefixes []netip.Prefix
	for _, b := range blocks {
		prefixes = append(prefixes, netip.MustParsePrefix(b))
	}
	p.SetBlocks(prefixes)
	return p
}

// publish records the addresses of a service, which then needs no reservation.
func publish(p *Pool, service types.NamespacedName, addrs ...netip.Addr) {
	p.SetRecorded(service, "east", addrs)
	p.Release(service)
}

func reserve(t *testing.T, p *Pool, name string) netip.Addr {
	t.Helper()
	addr, err := p.Reserve(service(name), false, netip.Addr{})
	if err != nil {
		t.Fatalf("an address for %s: %v", name, err)
	}
	return addr
}

func TestReservationIsStableUntilReleased(t *testing.T) {
	p := pool("243.0.0.0/29", "fd00:243::/112")
	first := reserve(t, p, "web")
	if again := reserve(t, p, "web"); again != first || first != ip("243.0.0.1") {
		t.Errorf("reserved %s, then %s", first, again)
	}
	six, err := p.Reserve(service("web"), true, netip.Addr{})
	if err != nil || six != ip("fd00:243::1") {
		t.Errorf("IPv6: %s %v", six, err)
	}
	publish(p, service("web"), first, six)
	if other := reserve(t, p, "db"); other == first {
		t.Error("an address in use was reserved")
	}
	if use := p.Usage()[0]; use.Used != 2 || use.Size != 6 {
		t.Errorf("use: %+v", use)
	}
}

// A process that has just started does not know which addresses became free a moment ago.
func TestProcessesBeginAtDifferentAddresses(t *testing.T) {
	for start, want := range map[uint64]string{0: "243.0.0.1", 4: "243.0.0.5", 6: "243.0.0.1"} {
		p := NewPool(start)
		p.SetBlocks([]netip.Prefix{netip.MustParsePrefix("243.0.0.0/29")})
		if got := reserve(t, p, "a"); got != ip(want) {
			t.Errorf("start %d: %s, want %s", start, got, want)
		}
		seen := map[netip.Addr]bool{}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			seen[reserve(t, p, name)] = true
		}
		if len(seen) != 6 {
			t.Errorf("start %d: %d of 6 addresses are allocated", start, len(seen))
		}
		p.Release(service("c"))
		p.Release(service("a"))
		if got := reserve(t, p, "g"); got == ip(want) {
			t.Errorf("start %d: %s was free for a shorter time than another", start, got)
		}
	}
}

func TestReleaseEndsTheReservation(t *testing.T) {
	p := pool("243.0.0.0/30")
	reserve(t, p, "a")
	reserve(t, p, "b")
	p.SetRecorded(service("a"), "east", []netip.Addr{ip("243.9.0.1")}) // from a block of another member
	p.Release(service("a"))
	if use := p.Usage()[0]; use.Used != 1 {
		t.Errorf("use: %+v", use)
	}
}

func TestAddressesInUseOfAnInheritedBlockAreNotReserved(t *testing.T) {
	p := NewPool(0)
	p.SetRecorded(service("old"), "east", []netip.Addr{ip("243.0.0.1")})
	p.SetRemembered(service("lost"), []netip.Addr{ip("243.0.0.2")})
	p.SetBlocks([]netip.Prefix{netip.MustParsePrefix("243.0.0.0/29")})
	if got := reserve(t, p, "new"); got != ip("243.0.0.3") {
		t.Errorf("reserved %s", got)
	}
	if got, err := p.Reserve(service("lost"), false, ip("243.0.0.2")); err != nil || got != ip("243.0.0.2") {
		t.Errorf("the service that had the address did not get it again: %s %v", got, err)
	}
	if got, err := p.Reserve(service("other"), false, ip("243.0.0.1")); err != nil || got == ip("243.0.0.1") {
		t.Errorf("an address in use was reserved because it was wanted: %s %v", got, err)
	}
	// A former address of another member's block is claimed again, unless another service has it.
	if got, err := p.Reserve(service("former"), false, ip("243.9.0.1")); err != nil || got != ip("243.9.0.1") {
		t.Errorf("%s %v", got, err)
	}
	if got, err := p.Reserve(service("late"), false, ip("243.9.0.1")); err != nil || got == ip("243.9.0.1") {
		t.Errorf("%s %v", got, err)
	}
	for _, odd := range []string{"243.0.0.0", "243.0.0.7", "fd00::1"} {
		if got, err := p.Reserve(service("odd"+odd), false, ip(odd)); err == nil && got == ip(odd) {
			t.Errorf("%s is not an address of this block", odd)
		}
	}
}

func TestFailedReservationIsRetriedWhenAnAddressIsFreed(t *testing.T) {
	p := pool("243.0.0.0/30")
	var notified []types.NamespacedName
	p.OnFreed = func(services ...types.NamespacedName) { notified = append(notified, services...) }
	publish(p, service("a"), reserve(t, p, "a"))
	publish(p, service("b"), reserve(t, p, "b"))
	_, err := p.Reserve(service("c"), false, netip.Addr{})
	var exhausted *ExhaustedError
	if !errors.As(err, &exhausted) || exhausted.Used != 2 ||
		!strings.Contains(err.Error(), "all 2 addresses of this cluster's block 243.0.0.0/30 are in use: unexport") {
		t.Fatalf("exhausted: %v", err)
	}
	if _, err := p.Reserve(service("c"), true, netip.Addr{}); err == nil || !strings.Contains(err.Error(), "no IPv6 block") {
		t.Errorf("no block: %v", err)
	}
	p.SetRecorded(service("a"), "east", nil)
	if !slices.Contains(notified, service("c")) {
		t.Fatal("OnFreed was not called for the service that waits")
	}
	if got := reserve(t, p, "c"); got != ip("243.0.0.1") {
		t.Errorf("the freed address: %s", got)
	}
	notified = nil
	p.Release(service("c"))
	p.SetRecorded(service("b"), "east", nil)
	if len(notified) > 0 {
		t.Errorf("OnFreed was called for %v, which need no address", notified)
	}
}

// A member whose block is used up gets another one. What it has stays, and services that wait for
// an address are tried again.
func TestAddedBlockIsUsedWhenTheFirstIsFull(t *testing.T) {
	first, second := netip.MustParsePrefix("243.0.0.0/30"), netip.MustParsePrefix("243.9.0.0/30")
	p := pool(first.String())
	var notified []types.NamespacedName
	p.OnFreed = func(services ...types.NamespacedName) { notified = append(notified, services...) }
	for _, name := range []string{"a", "b"} {
		publish(p, service(name), reserve(t, p, name))
	}
	if _, err := p.Reserve(service("c"), false, netip.Addr{}); err == nil {
		t.Fatal("the block has two addresses, and three were reserved")
	}
	p.SetBlocks([]netip.Prefix{first, netip.MustParsePrefix("fd00:243::/126"), second})
	if !slices.Contains(notified, service("c")) {
		t.Error("OnFreed was not called for the service that waits")
	}
	for _, name := range []string{"c", "d"} {
		addr := reserve(t, p, name)
		if !second.Contains(addr) {
			t.Errorf("%s gets %s, which is not of the new block", name, addr)
		}
		publish(p, service(name), addr)
	}
	if _, err := p.Reserve(service("e"), false, netip.Addr{}); err == nil ||
		!strings.Contains(err.Error(), "all 4 addresses of this cluster's block 243.0.0.0/30, 243.9.0.0/30 are in use") {
		t.Errorf("exhausted: %v", err)
	}
	p.SetRecorded(service("a"), "east", nil)
	if addr := reserve(t, p, "e"); !first.Contains(addr) {
		t.Errorf("the freed address is not used, but %s", addr)
	}
	if got, err := p.Reserve(service("odd"), false, second.Addr()); err == nil {
		t.Errorf("%s is not an address of a block", got)
	}
}

// An address that was just released is reserved last.
func TestReleasedAddressIsReservedLast(t *testing.T) {
	p := pool("243.0.0.0/29")
	first := reserve(t, p, "a")
	p.Release(service("a"))
	if second := reserve(t, p, "b"); second == first {
		t.Error("an address was used again at once although others were free")
	}
}

func TestSmallAndLargeBlocks(t *testing.T) {
	for block, size := range map[string]int{"243.0.0.4/32": 1, "243.0.0.4/31": 2, "243.0.0.0/16": 65534, "fd00::/128": 1} {
		if got := pool(block).Usage()[0].Size; got != size {
			t.Errorf("%s has %d addresses, want %d", block, got, size)
		}
	}
	p := pool("fd00:243::/40") // more than 64 bits of hosts
	if got, err := p.Reserve(service("a"), true, netip.Addr{}); err != nil || got != ip("fd00:243::1") {
		t.Errorf("%s %v", got, err)
	}
	far := ip("fd00:243:0:7::1")
	p.SetRecorded(service("b"), "east", []netip.Addr{far})
	p.SetRecorded(service("b"), "east", nil)
	if got, _ := p.Reserve(service("c"), true, netip.Addr{}); got != ip("fd00:243::2") {
		t.Errorf("reserved %s after an address far away in the block was freed", got)
	}
}

// In any sequence of calls, no address is allocated twice and none is lost.
func TestPoolAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pool("243.0.0.0/28")
		published := map[string]netip.Addr{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			name := fmt.Sprint("s", rapid.IntRange(0, 25).Draw(t, "service"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				if _, has := published[name]; has {
					continue
				}
				addr, err := p.Reserve(service(name), false, netip.Addr{})
				if err != nil {
					if len(published) < 14 {
						t.Fatalf("%d of 14 in use, and none left: %v", len(published), err)
					}
					continue
				}
				for other, taken := range published {
					if taken == addr {
						t.Fatalf("%s got %s of %s", name, addr, other)
					}
				}
				published[name] = addr
				publish(p, service(name), addr)
			case 2:
				delete(published, name)
				p.SetRecorded(service(name), "east", nil)
			case 3:
				p.Release(service(name))
			}
		}
		if use := p.Usage()[0]; use.Used != len(published) {
			t.Fatalf("%d in use, the pool says %d", len(published), use.Used)
		}
	})
}

// BenchmarkReserve reserves an address of a block of 65,536 of which the given number is in use,
// and releases it.
func BenchmarkReserve(b *testing.B) {
	for _, used := range []int{0, 1000, 65000, 65533} {
		b.Run(fmt.Sprintf("used=%d", used), func(b *testing.B) {
			p := pool("243.0.0.0/16")
			for i := range used {
				name := service(fmt.Sprint("s", i))
				addr, err := p.Reserve(name, false, netip.Addr{})
				if err != nil {
					b.Fatal(err)
				}
				publish(p, name, addr)
			}
			web := service("web")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Reserve(web, false, netip.Addr{}); err != nil {
					b.Fatal(err)
				}
				p.Release(web)
			}
		})
	}
}
