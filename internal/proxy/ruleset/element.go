package ruleset

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"
)

// Kind is what a set or map is for.
type Kind uint8

// The kinds of sets, each of which exists once per address family. Keys and values are
// concatenations whose parts are padded to four bytes, as the kernel's registers are.
const (
	// VIPs is the set of the services' addresses.
	VIPs Kind = iota
	// Services maps VIP, protocol and port to the class of the service port.
	Services
	// Endpoints maps VIP, protocol, port and an index below the class's count to an endpoint's
	// address and port.
	Endpoints
	// Slots maps the key of Endpoints to an endpoint's number, by which clients are remembered. It
	// is filled for service ports with affinity.
	Slots
	// Members maps VIP, protocol, port and an endpoint's number to its address and port. It is
	// filled for service ports with affinity. A remembered number that is not in it belongs to a
	// removed endpoint.
	Members
	// Hairpin is the set of pairs of an address with itself.
	Hairpin
	// Silent is the set of VIP, protocol and port whose packets are dropped instead of rejected.
	Silent
	// Kinds is the number of kinds.
	Kinds
)

// Set is one set or map of the table.
type Set struct {
	Kind Kind
	IPv6 bool
}

// Element is one element of a set, in the kernel's encoding.
type Element struct {
	Set Set
	Key string
	// Value is what a map has for the key, followed by the comment of the element.
	Value string
}

// classBytes is the length of a class in Services.
const classBytes = 4

// maxComment is the longest comment that nft shows.
const maxComment = 127

// Data returns what a map has for the key. It is empty if the set is not a map.
func (e Element) Data() string { return e.Value[:len(e.Value)-len(e.Comment())] }

// Comment returns the name of the element's service. Only elements of VIPs and Services have one:
// the others begin with a VIP.
func (e Element) Comment() string {
	switch e.Set.Kind {
	case VIPs:
		return e.Value
	case Services:
		return e.Value[min(classBytes, len(e.Value)):]
	}
	return ""
}

// Class is how the endpoint of a connection is chosen: one of Count at random, remembered for
// Affinity seconds. Each class in use has a chain, which all its service ports share.
type Class struct {
	IPv6     bool
	Count    uint32
	Affinity uint32
}

// The largest values that fit into a class. Kubernetes limits affinity to a day, which is less.
const (
	MaxAffinity  = 1<<17 - 1
	MaxEndpoints = 1<<15 - 1
)

// Key returns the class as the value of a Services element.
func (c Class) Key() string {
	return string(binary.NativeEndian.AppendUint32(nil, c.Affinity<<15|c.Count))
}

var errMalformed = errors.New("malformed element: the table was not written by this program")

// ParseClass is the inverse of Key. ok is false if key has another length.
func ParseClass(ipv6 bool, key string) (c Class, ok bool) {
	if len(key) != classBytes {
		return Class{}, false
	}
	n := binary.NativeEndian.Uint32([]byte(key))
	return Class{IPv6: ipv6, Count: n & MaxEndpoints, Affinity: n >> 15}, true
}

func (f Frontend) appendKey(b []byte) []byte {
	b = append(b, f.VIP.AsSlice()...)
	b = append(b, byte(f.Protocol), 0, 0, 0)
	return appendPort(b, f.Port)
}

func appendPort(b []byte, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

func appendEndpoint(b []byte, e netip.AddrPort) []byte {
	return appendPort(append(b, e.Addr().AsSlice()...), e.Port())
}

// maxKey is the length of the longest key, in IPv6: an address, a protocol, a port and a number.
const maxKey = 16 + 3*4

func (f Frontend) numberedKey(n uint32) string {
	return string(binary.NativeEndian.AppendUint32(f.appendKey(make([]byte, 0, maxKey)), n))
}

// endpointElement returns the element of an endpoint at an index.
func endpointElement(f Frontend, index int, e netip.AddrPort) Element {
	return Element{Set: Set{Endpoints, f.VIP.Is6()}, Key: f.numberedKey(uint32(index)), Value: string(appendEndpoint(nil, e))}
}

// parseEndpoint is the inverse of endpointElement.
func parseEndpoint(e Element) (f Frontend, index int, endpoint netip.AddrPort, err error) {
	width := 4
	if e.Set.IPv6 {
		width = 16
	}
	if len(e.Key) != width+12 || len(e.Value) != width+4 {
		return f, 0, endpoint, errMalformed
	}
	key, value := []byte(e.Key), []byte(e.Value)
	f.VIP, _ = netip.AddrFromSlice(key[:width]) // the width is right
	f.Protocol, f.Port = Protocol(key[width]), binary.BigEndian.Uint16(key[width+4:])
	addr, _ := netip.AddrFromSlice(value[:width])
	return f, int(binary.NativeEndian.Uint32(key[width+8:])), netip.AddrPortFrom(addr, binary.BigEndian.Uint16(value[width:])), nil
}

// elements returns the elements of a service, given its name and the order of each port's
// endpoints.
func (s *Service) elements(name string, order func(Frontend) []netip.AddrPort) []Element {
	var out []Element
	comment := name[:min(len(name), maxComment)]
	for _, vip := range s.VIPs {
		out = append(out, Element{Set: Set{VIPs, vip.Is6()}, Key: string(vip.AsSlice()), Value: comment})
	}
	for i := range s.Ports {
		out = s.Ports[i].elements(out, comment, order(s.Ports[i].Frontend))
	}
	for _, addr := range s.Hairpin {
		key := append(addr.AsSlice(), addr.AsSlice()...)
		out = append(out, Element{Set: Set{Hairpin, addr.Is6()}, Key: string(key)})
	}
	return out
}

func (p *Port) elements(out []Element, comment string, order []netip.AddrPort) []Element {
	six := p.VIP.Is6()
	frontend := string(p.appendKey(make([]byte, 0, maxKey)))
	if len(order) == 0 {
		if p.Silent {
			out = append(out, Element{Set: Set{Silent, six}, Key: frontend})
		}
		return out
	}
	out = append(out, Element{Set: Set{Services, six}, Key: frontend, Value: p.class(order).Key() + comment})
	var numbers []uint32
	if p.Affinity > 0 {
		numbers = hashNumbers(order)
	}
	for i, e := range order {
		out = append(out, endpointElement(p.Frontend, i, e))
		if p.Affinity > 0 {
			number := string(binary.NativeEndian.AppendUint32(nil, numbers[i]))
			out = append(out,
				Element{Set: Set{Slots, six}, Key: p.numberedKey(uint32(i)), Value: number},
				Element{Set: Set{Members, six}, Key: p.numberedKey(numbers[i]), Value: string(appendEndpoint(nil, e))})
		}
	}
	return out
}

// hashNumbers gives each endpoint a number that stays the same while others come and go, and after
// a restart: its hash. If two hashes are equal, which happens in one of 300 services with 5,000
// endpoints, the later by address takes the next free number.
func hashNumbers(endpoints []netip.AddrPort) []uint32 {
	sorted := slices.Clone(endpoints)
	slices.SortFunc(sorted, netip.AddrPort.Compare)
	taken := make(map[uint32]struct{}, len(sorted))
	numbers := make(map[netip.AddrPort]uint32, len(sorted))
	for _, e := range sorted {
		hash := fnv.New32a()
		_, _ = hash.Write(appendEndpoint(nil, e)) // never fails
		n := hash.Sum32()
		for {
			if _, ok := taken[n]; !ok {
				break
			}
			n++
		}
		taken[n] = struct{}{}
		numbers[e] = n
	}
	out := make([]uint32, len(endpoints))
	for i, e := range endpoints {
		out[i] = numbers[e]
	}
	return out
}

func (p *Port) class(order []netip.AddrPort) Class {
	return Class{IPv6: p.VIP.Is6(), Count: uint32(len(order)), Affinity: p.Affinity}
}
