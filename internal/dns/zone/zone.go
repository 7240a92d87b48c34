package zone

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Zone holds the answers of all services. It is safe for concurrent use; every reply comes from one
// state of a service, never from a mixture.
type Zone struct {
	Options
	services shardedMap[string, *Answers]
	reverse  shardedMap[netip.Addr, string]
	// namespaces counts the services of each namespace: a name exists if one below it does (RFC
	// 8020).
	namespaces shardedMap[string, int]
	serial     atomic.Uint32

	mu sync.Mutex // of writers
	// otherNames are the further names of addresses with more than one; the first in alphabetical
	// order is in reverse. Only writers access it.
	otherNames map[netip.Addr][]string
	counts     map[Kind]Count

	soa struct{ ns, mbox string }
	ns  atomic.Pointer[host]
}

// Count is the size of a zone by kind of service.
type Count struct{ Services, Endpoints int }

// New returns an empty zone.
func New(o Options) *Zone {
	z := &Zone{Options: o, otherNames: map[netip.Addr][]string{}, counts: map[Kind]Count{}}
	seed := maphash.MakeSeed()
	byText := func(s string) uint64 { return maphash.String(seed, s) }
	z.services.hash, z.namespaces.hash = byText, byText
	z.reverse.hash = func(ip netip.Addr) uint64 {
		bytes := ip.As16()
		// Neighbouring addresses differ in the last bytes; a multiplication spreads them over the
		// shards.
		const odd = 0x9e3779b97f4a7c15
		return ((binary.BigEndian.Uint64(bytes[8:]) ^ binary.BigEndian.Uint64(bytes[:8])) * odd) >> 32
	}
	z.soa.ns, z.soa.mbox = "ns.dns."+o.Name, "hostmaster."+o.Name
	z.SetNameServers(nil)
	z.updateSerial()
	return z
}

// SetNameServers sets the addresses of ns.dns.<zone>.
func (z *Zone) SetNameServers(addresses []netip.Addr) {
	ns := &host{fqdn: z.soa.ns}
	for _, ip := range addresses {
		ns.family(ip).add(ip)
	}
	z.ns.Store(ns)
}

// Publish must be called after the first load and before the first query. What is set before costs
// much less.
func (z *Zone) Publish() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.services.published, z.reverse.published, z.namespaces.published = true, true, true
}

// Set replaces the answers of a service. key is that of Key; nil answers remove its names.
func (z *Zone) Set(key string, a *Answers) {
	z.mu.Lock()
	defer z.mu.Unlock()
	old, had := z.services.get(key)
	switch {
	case a != nil:
		z.services.set(a.key, a)
		z.count(a, 1)
	case had:
		z.services.remove(key)
	default:
		return
	}
	if had {
		z.count(old, -1)
	}
	if (a != nil) != had {
		z.countNamespace(key, a != nil)
	}
	z.updateReverse(old, a)
	z.updateSerial()
}

func (z *Zone) count(a *Answers, by int) {
	c := z.counts[a.kind]
	c.Services += by
	c.Endpoints += by * a.Endpoints()
	z.counts[a.kind] = c
}

func (z *Zone) countNamespace(key string, more bool) {
	_, namespace := cutLast(key)
	n, _ := z.namespaces.get(namespace)
	switch {
	case more:
		z.namespaces.set(namespace, n+1)
	case n > 1:
		z.namespaces.set(namespace, n-1)
	default:
		z.namespaces.remove(namespace)
	}
}

// updateReverse replaces the reverse names of a service and writes only the differences.
func (z *Zone) updateReverse(old, now *Answers) {
	type name struct {
		ip   netip.Addr
		name string
	}
	gone := map[name]bool{}
	if old != nil {
		old.reverseNames(func(ip netip.Addr, text string) { gone[name{ip, text}] = true })
	}
	if now != nil {
		now.reverseNames(func(ip netip.Addr, text string) {
			n := name{ip, text}
			if gone[n] {
				delete(gone, n)
				return
			}
			z.addReverse(ip, text)
		})
	}
	for n := range gone {
		z.dropReverse(n.ip, n.name)
	}
}

// addReverse adds a reverse name. An address has one name in answers (specification 2, 2.3.3): of
// several it is the first in alphabetical order, so that it is the same each time.
func (z *Zone) addReverse(ip netip.Addr, name string) {
	first, taken := z.reverse.get(ip)
	if !taken {
		z.reverse.set(ip, name)
		return
	}
	if name < first {
		first, name = name, first
		z.reverse.set(ip, first)
	}
	z.otherNames[ip] = append(z.otherNames[ip], name)
}

func (z *Zone) dropReverse(ip netip.Addr, name string) {
	rest := z.otherNames[ip]
	if first, _ := z.reverse.get(ip); first == name {
		if len(rest) == 0 {
			z.reverse.remove(ip)
			return
		}
		name = slices.MinFunc(rest, cmp.Compare[string])
		z.reverse.set(ip, name)
	}
	if i := slices.Index(rest, name); i >= 0 {
		rest = slices.Delete(rest, i, i+1)
	}
	if len(rest) == 0 {
		delete(z.otherNames, ip)
		return
	}
	z.otherNames[ip] = rest
}

// updateSerial sets the serial number to the time of the change. It never decreases, even if the
// clock does (RFC 1982).
func (z *Zone) updateSerial() {
	now := uint32(time.Now().Unix()) // wraps around in 2106, as serial numbers may
	if before := z.serial.Load(); int32(now-before) <= 0 && before != 0 {
		now = before
	}
	z.serial.Store(now)
}

// Counts returns the size of the zone by kind.
func (z *Zone) Counts() map[Kind]Count {
	z.mu.Lock()
	defer z.mu.Unlock()
	out := map[Kind]Count{}
	for _, k := range []Kind{ClusterSetIP, Classic, Headless} {
		out[k] = z.counts[k]
	}
	return out
}

// Reverse returns the reverse name of an address.
func (z *Zone) Reverse(ip netip.Addr) (name string, found bool) { return z.reverse.get(ip) }
