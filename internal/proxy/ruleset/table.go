package ruleset

import (
	"net/netip"
	"slices"
)

// Table is a model of the kernel's table that collects changes. It is not safe for concurrent use.
//
// A caller sets services, takes the Changes and applies them in one transaction. If that fails, the
// kernel's state is unknown: discard the Table, read the kernel's table, Load it into a new Table
// and set all services again.
type Table struct {
	elements  map[elementID]*entry
	services  map[string]*programmedService
	endpoints map[Frontend][]netip.AddrPort
	classes   map[Class]int // how many service ports use each; unused ones stay until Sweep

	sizes map[Set]int

	originals              map[elementID]original
	newClasses, oldClasses []Class
	staleUDP               map[Frontend]struct{}
}

type elementID struct {
	set Set
	key string
}

// entry is an element that is in the kernel, or will be after the next transaction.
type entry struct {
	value string
	refs  int // services that have it; several can have the same hairpin element
}

// original is an element's state in the kernel when the changes began.
type original struct {
	value   string
	existed bool
}

type programmedService struct {
	elements  []Element
	frontends []Frontend
	classes   []Class
}

// Changes are one transaction: Delete first, then classes, then Add. A changed element is in both.
type Changes struct {
	Delete, Add []Element
	// NewClasses need a chain before an element refers to them. No element refers to OldClasses any
	// more.
	NewClasses, OldClasses []Class
	// StaleUDP are frontends with possible tracked connections to endpoints they no longer have.
	StaleUDP []Frontend
}

// Empty reports whether there is nothing to apply.
func (c *Changes) Empty() bool {
	return len(c.Delete)+len(c.Add)+len(c.NewClasses)+len(c.OldClasses)+len(c.StaleUDP) == 0
}

// NewTable returns the Table of an empty kernel.
func NewTable() *Table {
	return &Table{
		elements: map[elementID]*entry{}, services: map[string]*programmedService{}, endpoints: map[Frontend][]netip.AddrPort{},
		classes: map[Class]int{}, sizes: map[Set]int{}, originals: map[elementID]original{}, staleUDP: map[Frontend]struct{}{},
	}
}

// Load fills a new Table with what the kernel holds. After all services have been set, Sweep
// removes the elements that none of them has. If an element was not written by this program, Load
// fails, the Table is unusable and the kernel's table must be replaced.
func (t *Table) Load(elements []Element, classes []Class) error {
	for _, c := range classes {
		t.classes[c] = 0
	}
	for _, e := range elements {
		t.elements[elementID{e.Set, e.Key}] = &entry{value: e.Value}
		t.sizes[e.Set]++
		if e.Set.Kind != Endpoints {
			continue
		}
		f, index, endpoint, err := parseEndpoint(e)
		if err != nil {
			return err
		}
		if index > len(elements) {
			return errMalformed
		}
		order := t.endpoints[f]
		if missing := index + 1 - len(order); missing > 0 {
			order = append(order, make([]netip.AddrPort, missing)...)
		}
		order[index] = endpoint
		t.endpoints[f] = order
	}
	return nil
}

// Sweep removes everything loaded that no service has, and unused classes. Otherwise unused classes
// stay: the next service with as many endpoints needs them, and so may a packet under way.
func (t *Table) Sweep() {
	for key, e := range t.elements {
		if e.refs == 0 {
			t.remove(key)
		}
	}
	for f := range t.endpoints {
		if !t.hasService(f) {
			delete(t.endpoints, f)
			if f.Protocol == UDP {
				t.staleUDP[f] = struct{}{}
			}
		}
	}
	for c, uses := range t.classes {
		if uses == 0 {
			delete(t.classes, c)
			t.oldClasses = append(t.oldClasses, c)
		}
	}
}

func (t *Table) remove(key elementID) {
	t.recordOriginal(key)
	delete(t.elements, key)
	t.sizes[key.set]--
}

func (t *Table) hasService(f Frontend) bool {
	_, ok := t.elements[elementID{Set{Services, f.VIP.Is6()}, string(f.appendKey(nil))}]
	return ok
}

// Set replaces a service; nil removes it. No two services may have a VIP in common.
func (t *Table) Set(name string, service *Service) {
	old := t.services[name]
	if service == nil {
		delete(t.services, name)
		t.release(old, nil)
		return
	}
	next := &programmedService{}
	for i := range service.Ports {
		p := &service.Ports[i]
		next.frontends = append(next.frontends, p.Frontend)
		if len(p.Endpoints) == 0 {
			t.setEndpoints(p.Frontend, nil)
			continue
		}
		t.setEndpoints(p.Frontend, assignIndexes(t.endpoints[p.Frontend], p.Endpoints))
		next.classes = append(next.classes, p.class(p.Endpoints))
	}
	next.elements = service.elements(func(f Frontend) []netip.AddrPort { return t.endpoints[f] })
	t.services[name] = next
	for _, c := range next.classes {
		if _, known := t.classes[c]; !known {
			t.newClasses = append(t.newClasses, c)
		}
		t.classes[c]++
	}
	for _, e := range next.elements {
		t.acquire(e)
	}
	t.release(old, next.frontends)
}

// setEndpoints sets a frontend's endpoints and records whether connections to others may still be
// tracked.
func (t *Table) setEndpoints(f Frontend, order []netip.AddrPort) {
	old := t.endpoints[f]
	if f.Protocol == UDP {
		now := make(map[netip.AddrPort]struct{}, len(order))
		for _, e := range order {
			now[e] = struct{}{}
		}
		gone := slices.ContainsFunc(old, func(e netip.AddrPort) bool { _, stays := now[e]; return !stays })
		// A client that sent packets before the VIP was programmed has a tracked connection without
		// translation.
		if gone || len(old) == 0 && len(order) > 0 {
			t.staleUDP[f] = struct{}{}
		}
	}
	if len(order) == 0 {
		delete(t.endpoints, f)
	} else {
		t.endpoints[f] = order
	}
}

// release removes a service's previous elements and classes, and the endpoints of frontends that it
// no longer has.
func (t *Table) release(old *programmedService, kept []Frontend) {
	if old == nil {
		return
	}
	for _, e := range old.elements {
		key := elementID{e.Set, e.Key}
		entry := t.elements[key]
		if entry == nil {
			continue
		}
		if entry.refs--; entry.refs <= 0 {
			t.remove(key)
		}
	}
	for _, c := range old.classes {
		t.classes[c]--
	}
	for _, f := range old.frontends {
		if !slices.Contains(kept, f) {
			t.setEndpoints(f, nil)
		}
	}
}

func (t *Table) acquire(e Element) {
	key := elementID{e.Set, e.Key}
	have := t.elements[key]
	switch {
	case have == nil:
		t.recordOriginal(key)
		t.elements[key] = &entry{value: e.Value, refs: 1}
		t.sizes[key.set]++
	case have.value != e.Value:
		t.recordOriginal(key)
		have.value = e.Value
		have.refs++
	default:
		have.refs++
	}
}

// recordOriginal records an element's state before its first change.
func (t *Table) recordOriginal(key elementID) {
	if _, done := t.originals[key]; done {
		return
	}
	b := original{}
	if e := t.elements[key]; e != nil {
		b = original{value: e.value, existed: true}
	}
	t.originals[key] = b
}

// Changes returns the changes since the last call. The caller must apply them.
func (t *Table) Changes() Changes {
	c := Changes{NewClasses: t.newClasses, OldClasses: t.oldClasses}
	for key, was := range t.originals {
		now := t.elements[key]
		if now != nil && was.existed && now.value == was.value {
			continue
		}
		if was.existed {
			c.Delete = append(c.Delete, Element{Set: key.set, Key: key.key, Value: was.value})
		}
		if now != nil {
			c.Add = append(c.Add, Element{Set: key.set, Key: key.key, Value: now.value})
		}
	}
	for f := range t.staleUDP {
		c.StaleUDP = append(c.StaleUDP, f)
	}
	t.originals, t.newClasses, t.oldClasses, t.staleUDP = map[elementID]original{}, nil, nil, map[Frontend]struct{}{}
	return c
}

// Endpoints returns a frontend's endpoints in the order of their indexes.
func (t *Table) Endpoints(f Frontend) []netip.AddrPort { return t.endpoints[f] }

// Size returns the number of elements in a set.
func (t *Table) Size(set Set) int { return t.sizes[set] }

// assignIndexes returns endpoints in the order of their indexes. An endpoint keeps its index while
// that is below the new count, so that a change of one endpoint changes one or two elements. The
// others take the free indexes in their order.
func assignIndexes(old, endpoints []netip.AddrPort) []netip.AddrPort {
	order := make([]netip.AddrPort, len(endpoints))
	unplaced := make(map[netip.AddrPort]struct{}, len(endpoints))
	for _, e := range endpoints {
		unplaced[e] = struct{}{}
	}
	for i, e := range old[:min(len(old), len(order))] {
		if _, ok := unplaced[e]; ok {
			order[i] = e
			delete(unplaced, e)
		}
	}
	free := 0
	for _, e := range endpoints {
		if _, ok := unplaced[e]; !ok {
			continue
		}
		for order[free].IsValid() {
			free++
		}
		order[free] = e
	}
	return order
}
