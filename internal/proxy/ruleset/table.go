package ruleset

import (
	"net/netip"
	"slices"
)

// Table follows what the kernel's table holds and collects what has to change. It is not safe for concurrent use.
//
// A caller sets services, takes the Changes and applies them in one transaction. When that fails nobody knows what the kernel
// holds: throw the Table away, read the kernel again, Load that into a new one and set every service anew.
type Table struct {
	elements  map[elementID]*entry
	services  map[string]*programmedService
	endpoints map[Frontend][]netip.AddrPort
	classes   map[Class]int // how many service ports use it; zero for one that is only still there

	sizes map[Set]int

	originals              map[elementID]original
	newClasses, oldClasses []Class
	staleUDP               map[Frontend]struct{}
}

type elementID struct {
	set Set
	key string
}

// entry is an element that is, or with the next transaction will be, in the kernel.
type entry struct {
	value string
	refs  int // services that want it; several can want the same hairpin
}

// before is how the kernel held an element when the changes began.
type original struct {
	value   string
	existed bool
}

type programmedService struct {
	elements  []Element
	frontends []Frontend
	classes   []Class
}

// Changes are one transaction: Delete first, then classes, then Add. An element that gets another value is in both.
type Changes struct {
	Delete, Add []Element
	// NewClasses need a chain before an element may name them; OldClasses are not named any more.
	NewClasses, OldClasses []Class
	// StaleUDP are frontends whose connections may be tracked to an endpoint that is no longer theirs.
	StaleUDP []Frontend
}

// Empty tells that there is nothing to apply.
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

// Load tells a new Table what the kernel holds. After every service has been set, Sweep removes what none of them wanted. It fails,
// and the Table is of no use, when an element is not of our making: the table must be replaced then.
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

// Sweep removes everything that was loaded and that no service wants, and the classes that nobody uses. Classes stay otherwise: the
// next service with as many endpoints needs them again, and a packet that is on its way must find them.
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

// Set makes a service what it should be; nil removes it. No two services may have a VIP in common.
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

// setOrder remembers a frontend's endpoints and whether connections may still be tracked to others.
func (t *Table) setEndpoints(f Frontend, order []netip.AddrPort) {
	old := t.endpoints[f]
	if f.Protocol == UDP {
		now := make(map[netip.AddrPort]struct{}, len(order))
		for _, e := range order {
			now[e] = struct{}{}
		}
		gone := slices.ContainsFunc(old, func(e netip.AddrPort) bool { _, stays := now[e]; return !stays })
		// A client that sent before the VIP was known here has a tracked connection that leads nowhere.
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

// release takes back what a service wanted before, but for the frontends it keeps.
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

// touch remembers how an element was when the changes began.
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

// Changes returns what has changed since it was last called, which the caller must now apply.
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

// Endpoints are what a frontend leads to, in the order of their indexes.
func (t *Table) Endpoints(f Frontend) []netip.AddrPort { return t.endpoints[f] }

// Size is how many elements a set has.
func (t *Table) Size(set Set) int { return t.sizes[set] }

// arrange gives endpoints their indexes. Those that have one keep it as long as it is below the new count, so that a change of one
// endpoint changes one or two elements; the others take what is free, in their order.
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
