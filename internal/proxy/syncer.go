package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/internal/proxy/ruleset"
)

// Syncer keeps the kernel's table as the services want it. It is not safe for concurrent use.
type Syncer struct {
	table *kernel.Table
	log   logr.Logger

	services  map[types.NamespacedName]*serviceState
	vipClaims vipClaims

	rules        *ruleset.Table // nil while it is not known what the kernel holds
	dirty        map[types.NamespacedName]struct{}
	staleUDP     map[ruleset.Frontend]struct{}
	refusedCount int
}

// held is what a service wants to be.
type serviceState struct {
	service       ruleset.Service
	refusedInputs []string // what of it cannot be used
	refusedCount  int      // how many things that are, with VIPs that are another's
	refusedText   string   // what was logged about it
}

// Outcome is what a sync did.
type Outcome struct {
	// Full says that the kernel's state was read and compared as a whole.
	Full bool
	// Added and Deleted count elements; one that changed is in both.
	Added, Deleted int
	// Forgotten counts tracked UDP connections that were ended.
	DeletedFlows int
}

// NewSyncer returns a Syncer without services. Its first Sync reads what the kernel holds, so set all services before.
func NewSyncer(table *kernel.Table, log logr.Logger) *Syncer {
	return &Syncer{
		table: table, log: log, services: map[types.NamespacedName]*serviceState{}, vipClaims: vipClaims{},
		dirty: map[types.NamespacedName]struct{}{}, staleUDP: map[ruleset.Frontend]struct{}{},
	}
}

// Set makes a service what was decided about it; since is the age of its ServiceImport. An empty result removes it. The next Sync brings it to
// the kernel. What was refused is logged when it is new.
func (s *Syncer) Set(name types.NamespacedName, since time.Time, r model.Result) {
	h := s.services[name]
	if h == nil {
		if len(r.Service.VIPs) == 0 && len(r.Refused) == 0 {
			return
		}
		h = &serviceState{}
		s.services[name] = h
	}
	others := s.vipClaims.set(name, since, h.service.VIPs, r.Service.VIPs)
	h.service, h.refusedInputs = r.Service, r.Refused
	for _, concerned := range append(others, name) {
		s.dirty[concerned] = struct{}{}
		s.updateRefusals(concerned)
	}
	if len(r.Service.VIPs) == 0 && len(r.Refused) == 0 {
		delete(s.services, name)
	}
}

// tell logs what of a service cannot be used, once until it changes.
func (s *Syncer) updateRefusals(name types.NamespacedName) {
	h := s.services[name]
	if h == nil {
		return
	}
	refused := slices.Clone(h.refusedInputs)
	for _, vip := range h.service.VIPs {
		if owner := s.vipClaims.owner(vip); owner != name {
			refused = append(refused, fmt.Sprintf("clusterset IP %s belongs to the older %s", vip, owner))
		}
	}
	s.refusedCount += len(refused) - h.refusedCount
	h.refusedCount = len(refused)
	const shown = 5
	text := strings.Join(refused[:min(len(refused), shown)], "; ")
	if more := len(refused) - shown; more > 0 {
		text = fmt.Sprintf("%s; and %d more", text, more)
	}
	if text != h.refusedText && text != "" {
		s.log.Info("part of a service cannot be used", "service", name, "refused", text)
	}
	h.refusedText = text
}

// Refused is how many things of all services cannot be used.
func (s *Syncer) RefusedCount() int { return s.refusedCount }

// Names are all services there are, for a caller who sets everything anew.
func (s *Syncer) Names() []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(s.services))
	for name := range s.services {
		names = append(names, name)
	}
	return names
}

// Sync brings everything that was set since the last one to the kernel, in one transaction. After a transaction that failed nothing is
// known about the kernel's state any more, and the next Sync reads it and compares everything. An error is to be answered by another
// Sync, later.
func (s *Syncer) Sync() (Outcome, error) {
	var o Outcome
	var err error
	if s.rules == nil {
		o, err = s.syncAll()
	} else {
		o, err = s.syncDirty()
	}
	if err != nil {
		s.rules = nil
		return o, err
	}
	clear(s.dirty)
	// What is still tracked to a removed endpoint is looked for until that has worked, but the rules are right already.
	o.DeletedFlows, err = s.deleteStaleUDP()
	return o, err
}

// Distrust makes the next Sync read the kernel's state and put back what others changed.
func (s *Syncer) RequireFullSync() { s.rules = nil }

func (s *Syncer) syncDirty() (Outcome, error) {
	for name := range s.dirty {
		s.program(name)
	}
	c := s.rules.Changes()
	s.addStaleUDP(c)
	o := Outcome{Added: len(c.Add), Deleted: len(c.Delete)}
	if len(c.Add)+len(c.Delete)+len(c.NewClasses)+len(c.OldClasses) == 0 {
		return o, nil
	}
	return o, s.table.Apply(c, false)
}

func (s *Syncer) syncAll() (Outcome, error) {
	elements, classes, intact, err := s.table.Read()
	if err != nil {
		return Outcome{Full: true}, err
	}
	s.rules = ruleset.NewTable()
	if intact {
		if err := s.rules.Load(elements, classes); err != nil {
			s.log.Info("the table is not ours as it is and will be replaced", "why", err.Error())
			s.rules, intact = ruleset.NewTable(), false
		}
	}
	for name := range s.services {
		s.program(name)
	}
	s.rules.Sweep()
	c := s.rules.Changes()
	s.addStaleUDP(c)
	o := Outcome{Full: true, Added: len(c.Add), Deleted: len(c.Delete)}
	if intact && len(c.Add)+len(c.Delete)+len(c.NewClasses)+len(c.OldClasses) == 0 {
		return o, nil
	}
	return o, s.table.Apply(c, !intact)
}

func (s *Syncer) program(name types.NamespacedName) {
	h := s.services[name]
	if h == nil {
		s.rules.Set(name.String(), nil)
		return
	}
	service := s.vipClaims.ownedPart(name, h.service)
	s.rules.Set(name.String(), &service)
}

// noteUDP remembers whose tracked connections must be looked at, until that has worked.
func (s *Syncer) addStaleUDP(c ruleset.Changes) {
	for _, f := range c.StaleUDP {
		s.staleUDP[f] = struct{}{}
	}
}

func (s *Syncer) deleteStaleUDP() (int, error) {
	if len(s.staleUDP) == 0 {
		return 0, nil
	}
	frontends := make([]ruleset.Frontend, 0, len(s.staleUDP))
	for f := range s.staleUDP {
		frontends = append(frontends, f)
	}
	n, err := s.table.DeleteStaleUDP(frontends, s.rules.Endpoints)
	if err == nil {
		clear(s.staleUDP)
	}
	return n, err
}

// Elements is how many elements of a kind the kernel holds.
func (s *Syncer) Elements(kind ruleset.Kind) int {
	if s.rules == nil {
		return 0
	}
	return s.rules.Size(ruleset.Set{Kind: kind}) + s.rules.Size(ruleset.Set{Kind: kind, IPv6: true})
}

// Remove takes the table away. VIPs lead nowhere then.
func (s *Syncer) Remove() error {
	s.rules = nil
	return s.table.Remove()
}

// Lookup is where the clients of a frontend are sent, for tests and people who ask; nil when it is unknown.
func (s *Syncer) Endpoints(f ruleset.Frontend) []netip.AddrPort {
	if s.rules == nil {
		return nil
	}
	return slices.Clone(s.rules.Endpoints(f))
}

var errNotSynced = errors.New("the kernel's table has not been brought up to date yet")
