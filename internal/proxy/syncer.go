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

// Syncer keeps the kernel's table up to date with the services. It is not safe for concurrent use.
type Syncer struct {
	// HandsOver is set if another data plane serves what is removed here, so that its connections
	// stay.
	HandsOver bool

	table   *kernel.Table
	cleaner flowCleaner
	log     logr.Logger

	services  map[types.NamespacedName]*serviceState
	vipClaims vipClaims

	rules        *ruleset.Table // nil while the kernel's state is unknown
	ranges       []netip.Prefix
	dirty        map[types.NamespacedName]struct{}
	refusedCount int
}

// serviceState is a service as it should be programmed.
type serviceState struct {
	service       ruleset.Service
	before        *ruleset.Service // as another data plane had it; nil but for a service that is being taken over
	refusedInputs []string         // inputs that cannot be used
	refusedCount  int              // how many there are, with VIPs of other services
	refusedText   string           // as it was logged last
}

// Outcome is the result of a sync.
type Outcome struct {
	// Full is set if the kernel's table was read and compared as a whole.
	Full bool
	// Added and Deleted count elements; a changed element counts in both.
	Added, Deleted int
	// Replaced is why the kernel's table was replaced; empty if it was not.
	Replaced string
	// DeletedFlows counts tracked connections that were deleted. FlowsError is why that failed, and
	// FlowsWait after how long another Sync continues; zero if nothing is left.
	DeletedFlows int
	FlowsError   error
	FlowsWait    time.Duration
}

// NewSyncer returns a Syncer without services. Its first Sync compares the kernel's table with the
// services, so set all of them before.
func NewSyncer(table *kernel.Table, flows Flows, log logr.Logger) *Syncer {
	return &Syncer{
		table: table, cleaner: flowCleaner{flows: flows}, log: log, services: map[types.NamespacedName]*serviceState{},
		vipClaims: vipClaims{}, dirty: map[types.NamespacedName]struct{}{},
	}
}

// SetRanges replaces the clusterset's ranges. The next Sync applies the change.
func (s *Syncer) SetRanges(ranges []netip.Prefix) {
	if s.table.SetRanges(ranges) {
		s.ranges = ranges
		s.RequireFullSync()
	}
}

// Set replaces a service; created is the creation time of its ServiceImport. An empty result
// removes it. The next Sync applies the change. Refused inputs are logged if they are new.
func (s *Syncer) Set(name types.NamespacedName, created time.Time, r model.Result) {
	h := s.services[name]
	if h == nil {
		if len(r.Service.VIPs) == 0 && len(r.Refused) == 0 {
			return
		}
		h = &serviceState{}
		s.services[name] = h
	}
	others := s.vipClaims.set(name, created, h.service.VIPs, r.Service.VIPs)
	h.service, h.refusedInputs = r.Service, r.Refused
	for _, affected := range append(others, name) {
		s.dirty[affected] = struct{}{}
		s.updateRefusals(affected)
	}
	if len(r.Service.VIPs) == 0 && len(r.Refused) == 0 {
		delete(s.services, name)
	}
}

// TakeOver says how another data plane served a service that is set next for the first time.
// Tracked connections to endpoints that it loses become stale, as if they had been here.
func (s *Syncer) TakeOver(name types.NamespacedName, before ruleset.Service) {
	s.services[name] = &serviceState{before: &before}
}

// updateRefusals counts what of a service cannot be used, and logs it when it changes.
func (s *Syncer) updateRefusals(name types.NamespacedName) {
	h := s.services[name]
	if h == nil {
		return
	}
	refused := slices.Clone(h.refusedInputs)
	for _, vip := range h.service.VIPs {
		if owner := s.vipClaims.owner(vip); owner != name {
			refused = append(refused, fmt.Sprintf("clusterset IP %s belongs to %s, which is older", vip, owner))
		}
	}
	s.refusedCount += len(refused) - h.refusedCount
	h.refusedCount = len(refused)
	const maxListed = 5
	text := strings.Join(refused[:min(len(refused), maxListed)], "; ")
	if more := len(refused) - maxListed; more > 0 {
		text = fmt.Sprintf("%s; and %d more", text, more)
	}
	if text != h.refusedText && text != "" {
		s.log.Info("part of a service cannot be used", "service", name, "refused", text)
	}
	h.refusedText = text
}

// RefusedCount returns how many inputs of all services cannot be used.
func (s *Syncer) RefusedCount() int { return s.refusedCount }

// Names returns the names of all services, for a caller that sets all of them again.
func (s *Syncer) Names() []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(s.services))
	for name := range s.services {
		names = append(names, name)
	}
	return names
}

// Sync applies all changes since the last one to the kernel, in one transaction. After a failed
// transaction the kernel's state is unknown, so the next Sync reads the table and compares all of
// it. The caller retries after an error.
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
	// The rules are in force already.
	o.DeletedFlows, o.FlowsWait, o.FlowsError = s.cleaner.clean(s.rules.Serving)
	return o, nil
}

// RequireFullSync makes the next Sync read the kernel's table and restore what other programs
// changed.
func (s *Syncer) RequireFullSync() { s.rules = nil }

// CheckRules returns how the rules in the kernel differ from those of this program, apart from the
// services. It returns nothing before the first Sync.
func (s *Syncer) CheckRules() (damage string, err error) {
	if s.rules == nil {
		return "", nil
	}
	return s.table.CheckRules()
}

func (s *Syncer) syncDirty() (Outcome, error) {
	for name := range s.dirty {
		s.program(name)
	}
	return s.apply(s.rules.Changes(), Outcome{})
}

func (s *Syncer) syncAll() (Outcome, error) {
	content, err := s.table.Read()
	if err != nil {
		return Outcome{Full: true}, err
	}
	s.rules = ruleset.NewTable(s.ranges)
	if content.Damage == "" {
		if err := s.rules.Load(content.Elements, content.Classes); err != nil {
			content.Damage = err.Error()
			s.rules = ruleset.NewTable(s.ranges)
		}
	}
	for name := range s.services {
		s.program(name)
	}
	s.rules.Sweep()
	changes := s.rules.Changes()
	changes.Stale.Add(s.rules.AllFlows()) // packets may have passed without these rules
	return s.apply(changes, Outcome{Full: true, Replaced: content.Damage})
}

// apply applies changes in one transaction, which replaces the table if the outcome says so.
func (s *Syncer) apply(c ruleset.Changes, o Outcome) (Outcome, error) {
	s.cleaner.stale.Add(c.Stale)
	o.Added, o.Deleted = len(c.Add), len(c.Delete)
	if o.Replaced == "" && c.Empty() {
		return o, nil
	}
	return o, s.table.Apply(c, o.Replaced != "")
}

func (s *Syncer) program(name types.NamespacedName) {
	h := s.services[name]
	switch {
	case h == nil && s.HandsOver:
		s.rules.HandOver(name.String())
		return
	case h == nil:
		s.rules.Set(name.String(), nil)
		return
	case h.before != nil:
		before := s.vipClaims.ownedPart(name, *h.before)
		s.rules.Set(name.String(), &before)
		h.before = nil
	}
	service := s.vipClaims.ownedPart(name, h.service)
	s.rules.Set(name.String(), &service)
}

// Elements returns how many elements of a kind the kernel holds.
func (s *Syncer) Elements(kind ruleset.Kind) int {
	if s.rules == nil {
		return 0
	}
	return s.rules.Size(ruleset.Set{Kind: kind}) + s.rules.Size(ruleset.Set{Kind: kind, IPv6: true})
}

// Remove deletes the table. Connections to VIPs fail after that.
func (s *Syncer) Remove() error {
	s.rules = nil
	return s.table.Remove()
}

// Endpoints returns the endpoints of a frontend, nil if the frontend is unknown.
func (s *Syncer) Endpoints(f ruleset.Frontend) []netip.AddrPort {
	if s.rules == nil {
		return nil
	}
	return slices.Clone(s.rules.Endpoints(f))
}

var errNotSynced = errors.New("the kernel's table has not been synced yet")
