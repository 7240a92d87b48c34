package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
)

// Table is a model of the kernel's table that collects changes. It is not safe for concurrent use.
//
// A caller sets services, takes the Changes and applies them in one transaction. If that fails, the
// kernel's state is unknown: discard the Table, read the kernel's table, Load it into a new Table
// and set all services again.
type Table struct {
	elements  map[elementID]entry
	services  map[string]*programmedService
	frontends map[Frontend]*frontendState
	ranges    []netip.Prefix // packets into them are refused
	classes   map[Class]int  // how many service ports use each; unused ones stay until Sweep

	sizes map[Set]int

	originals              map[elementID]original
	newClasses, oldClasses []Class
	lostEndpoints          map[Frontend]struct{}
}

// frontendState is a frontend with endpoints.
type frontendState struct {
	owner    string           // the service that has it; empty after Load
	order    []netip.AddrPort // endpoints by index
	draining []netip.AddrPort // see Port.Draining
}

type elementID struct {
	set Set
	key string
}

// entry is an element that is in the kernel, or will be after the next transaction.
type entry struct {
	value string
	refs  int32 // services that have it; several can have the same hairpin element
}

// original is an element's state in the kernel when the changes began.
type original struct {
	value   string
	existed bool
}

type programmedService struct {
	elements  []elementID
	frontends []Frontend
	classes   []Class
}

// Changes are one transaction: Delete first, then classes, then Add. A changed element is in both.
type Changes struct {
	Delete, Add []Element
	// NewClasses need a chain before an element refers to them. No element refers to OldClasses any
	// more.
	NewClasses, OldClasses []Class
	// Stale are tracked connections that the rules may not reach any more.
	Stale StaleFlows
}

// Empty reports whether there is nothing to apply.
func (c *Changes) Empty() bool {
	return len(c.Delete)+len(c.Add)+len(c.NewClasses)+len(c.OldClasses) == 0
}

// NewTable returns the Table of an empty kernel whose rules refuse packets into some ranges.
func NewTable(ranges []netip.Prefix) *Table {
	return &Table{
		ranges: ranges, elements: map[elementID]entry{}, services: map[string]*programmedService{}, frontends: map[Frontend]*frontendState{},
		classes: map[Class]int{}, sizes: map[Set]int{}, originals: map[elementID]original{}, lostEndpoints: map[Frontend]struct{}{},
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
		t.elements[elementID{e.Set, e.Key}] = entry{value: e.Value}
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
		state := t.frontends[f]
		if state == nil {
			state = &frontendState{}
			t.frontends[f] = state
		}
		if missing := index + 1 - len(state.order); missing > 0 {
			state.order = append(state.order, make([]netip.AddrPort, missing)...)
		}
		state.order[index] = endpoint
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
	for f, state := range t.frontends {
		if state.owner == "" {
			t.setFrontend(f, frontendState{})
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

// Set replaces a service; nil removes it. A VIP may move from one service to another between two
// calls of Changes, in any order of calls. After them no two services may have a VIP in common.
func (t *Table) Set(name string, service *Service) {
	old := t.services[name]
	if service == nil {
		delete(t.services, name)
		t.release(name, old, nil)
		return
	}
	next := &programmedService{}
	for i := range service.Ports {
		p := &service.Ports[i]
		next.frontends = append(next.frontends, p.Frontend)
		order := assignIndexes(t.Endpoints(p.Frontend), p.Endpoints)
		t.setFrontend(p.Frontend, frontendState{owner: name, order: order, draining: p.Draining})
		if len(order) > 0 {
			next.classes = append(next.classes, p.class(order))
		}
	}
	elements := service.elements(name, t.Endpoints)
	next.elements = make([]elementID, len(elements))
	for i := range elements {
		next.elements[i] = elementID{elements[i].Set, elements[i].Key}
	}
	t.services[name] = next
	for _, c := range next.classes {
		if _, known := t.classes[c]; !known {
			t.newClasses = append(t.newClasses, c)
		}
		t.classes[c]++
	}
	for i := range elements {
		t.acquire(elements[i])
	}
	t.release(name, old, next.frontends)
}

// HandOver removes a service that another data plane serves from now on: tracked connections stay.
func (t *Table) HandOver(name string) {
	old := t.services[name]
	t.Set(name, nil)
	if old == nil {
		return
	}
	for _, f := range old.frontends {
		if t.frontends[f] == nil {
			delete(t.lostEndpoints, f)
		}
	}
}

// setFrontend replaces a frontend and records whether flows to endpoints that it no longer has may
// be tracked.
func (t *Table) setFrontend(f Frontend, next frontendState) {
	if t.losesEndpoint(f, next) {
		t.lostEndpoints[f] = struct{}{}
	}
	if len(next.order)+len(next.draining) == 0 {
		delete(t.frontends, f)
	} else {
		t.frontends[f] = &next
	}
}

func (t *Table) losesEndpoint(f Frontend, next frontendState) bool {
	had := t.Serving(f)
	if len(had) == 0 {
		return false // most often: all frontends are new when the process starts
	}
	serving := make(map[netip.AddrPort]struct{}, len(next.order)+len(next.draining))
	for _, e := range slices.Concat(next.order, next.draining) {
		serving[e] = struct{}{}
	}
	return slices.ContainsFunc(had, func(e netip.AddrPort) bool { _, ok := serving[e]; return !ok })
}

// release removes a service's previous elements and classes, and the endpoints of frontends that it
// no longer has.
func (t *Table) release(name string, old *programmedService, kept []Frontend) {
	if old == nil {
		return
	}
	for _, key := range old.elements {
		entry, ok := t.elements[key]
		if !ok {
			continue
		}
		if entry.refs--; entry.refs <= 0 {
			t.remove(key)
		} else {
			t.elements[key] = entry
		}
	}
	for _, c := range old.classes {
		t.classes[c]--
	}
	for _, f := range old.frontends {
		// Another service may have taken the frontend over already.
		if state := t.frontends[f]; state != nil && state.owner == name && !slices.Contains(kept, f) {
			t.setFrontend(f, frontendState{})
		}
	}
}

func (t *Table) acquire(e Element) {
	key := elementID{e.Set, e.Key}
	have, exists := t.elements[key]
	if !exists {
		t.sizes[key.set]++
	}
	if !exists || have.value != e.Value {
		t.recordOriginal(key)
	}
	t.elements[key] = entry{value: e.Value, refs: have.refs + 1}
}

// recordOriginal records an element's state before its first change.
func (t *Table) recordOriginal(key elementID) {
	if _, done := t.originals[key]; done {
		return
	}
	b := original{}
	if e, ok := t.elements[key]; ok {
		b = original{value: e.value, existed: true}
	}
	t.originals[key] = b
}

// Changes returns the changes since the last call. The caller must apply them.
func (t *Table) Changes() Changes {
	c := Changes{NewClasses: t.newClasses, OldClasses: t.oldClasses}
	for key, was := range t.originals {
		now, exists := t.elements[key]
		if exists && was.existed && now.value == was.value {
			continue
		}
		if was.existed {
			c.Delete = append(c.Delete, Element{Set: key.set, Key: key.key, Value: was.value})
		}
		if exists {
			c.Add = append(c.Add, Element{Set: key.set, Key: key.key, Value: now.value})
		}
		if vip, ok := netip.AddrFromSlice([]byte(key.key)); ok && key.set.Kind == VIPs && exists && !was.existed && !t.isRefused(vip) {
			c.Stale.addVIP(vip)
		}
	}
	c.Stale.LostEndpoints = t.lostEndpoints
	t.originals, t.newClasses, t.oldClasses, t.lostEndpoints = map[elementID]original{}, nil, nil, map[Frontend]struct{}{}
	return c
}

// isRefused reports whether the kernel refused packets to an address before the changes. Packets
// that are refused leave no tracked connection.
func (t *Table) isRefused(vip netip.Addr) bool {
	return slices.ContainsFunc(t.ranges, func(r netip.Prefix) bool { return r.Contains(vip) })
}

// AllFlows returns every connection of the data plane as possibly stale, for a kernel whose past is
// unknown.
func (t *Table) AllFlows() StaleFlows {
	s := StaleFlows{Ranges: slices.Clone(t.ranges), LostEndpoints: map[Frontend]struct{}{}}
	for key := range t.elements {
		if vip, ok := netip.AddrFromSlice([]byte(key.key)); ok && key.set.Kind == VIPs {
			s.addVIP(vip)
		}
	}
	for f := range t.frontends {
		s.LostEndpoints[f] = struct{}{}
	}
	return s
}

// Endpoints returns a frontend's endpoints in the order of their indexes.
func (t *Table) Endpoints(f Frontend) []netip.AddrPort {
	if state := t.frontends[f]; state != nil {
		return state.order
	}
	return nil
}

// Serving returns the endpoints that may have connections from a frontend: those of new connections
// and those that drain.
func (t *Table) Serving(f Frontend) []netip.AddrPort {
	if state := t.frontends[f]; state != nil {
		return slices.Concat(state.order, state.draining)
	}
	return nil
}

// HasVIP reports whether packets to an address are translated or refused.
func (t *Table) HasVIP(vip netip.Addr) bool {
	_, ok := t.elements[elementID{Set{VIPs, vip.Is6()}, string(vip.AsSlice())}]
	return ok
}

// Reachable returns the endpoints that a packet to a frontend can get, by the elements of a loaded
// table.
func (t *Table) Reachable(f Frontend) []netip.AddrPort {
	set := Set{Services, f.VIP.Is6()}
	service, ok := t.elements[elementID{set, string(f.appendKey(nil))}]
	if !ok {
		return nil
	}
	class, _ := ParseClass(set.IPv6, Element{Set: set, Value: service.value}.Data())
	if _, ok := t.classes[class]; !ok {
		return nil // no chain
	}
	order := t.Endpoints(f)
	order = order[:min(len(order), int(class.Count))]
	return slices.DeleteFunc(slices.Clone(order), func(e netip.AddrPort) bool { return !e.IsValid() })
}

// Difference returns how the elements of a loaded table differ from those of t; empty if they are
// the same.
func (t *Table) Difference(loaded *Table) string {
	var missing, changed, unknown int
	for key, want := range t.elements {
		switch have, ok := loaded.elements[key]; {
		case !ok:
			missing++
		case have.value != want.value:
			changed++
		}
	}
	for key := range loaded.elements {
		if _, ok := t.elements[key]; !ok {
			unknown++
		}
	}
	if missing+changed+unknown == 0 {
		return ""
	}
	return fmt.Sprintf("elements of services: %d missing, %d changed, %d unknown", missing, changed, unknown)
}

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
