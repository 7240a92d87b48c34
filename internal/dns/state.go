package dns

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seamark-dev/seamark/internal/dns/zone"
)

// state is what the API server told, as far as answers depend on it. Reflectors write it, the builder reads it.
//
// Slices of services with a clusterset IP are not kept, only that they are there: no answer needs them, and they are most of
// what a clusterset has. Should such a service become headless or classic, its slices are asked for again.
type state struct {
	mu          sync.Mutex
	imports     map[string]*zone.Service
	slices      map[string]*storedSlice   // by namespace/name
	slicesByKey map[string][]*storedSlice // by the service's key
	locality    zone.Locality
	// dirty are the services to build again, with the time of the first event that made them so.
	dirty map[string]time.Time
	wake  chan struct{}
	// fetching are the services whose slices are being asked for.
	fetching map[string]bool
}

// held is an EndpointSlice. slice is nil when its content was not kept.
type storedSlice struct {
	key     string
	version uint64
	slice   *zone.Slice
}

func newState(l zone.Locality) *state {
	return &state{
		imports: map[string]*zone.Service{}, slices: map[string]*storedSlice{}, slicesByKey: map[string][]*storedSlice{},
		locality: l, dirty: map[string]time.Time{}, wake: make(chan struct{}, 1), fetching: map[string]bool{},
	}
}

// mark notes that a service must be built again. The caller holds the lock.
func (s *state) markDirty(key string) {
	if _, already := s.dirty[key]; !already {
		s.dirty[key] = time.Now()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *state) setImport(o *importObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := zone.Key(o.Service.Namespace, o.Service.Name)
	s.imports[key] = &o.Service
	if o.Kind == zone.ClusterSetIP {
		for _, h := range s.slicesByKey[key] {
			h.slice = nil
		}
	}
	s.markDirty(key)
}

func (s *state) removeImport(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := zone.Key(namespace, name)
	delete(s.imports, key)
	s.markDirty(key)
}

func (s *state) setSlice(o *sliceObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := o.Namespace + "/" + o.Name
	if before := s.slices[name]; before != nil && before.key != o.service {
		s.deleteSlice(name) // its label was changed: it belongs to another service now
	}
	h := &storedSlice{key: o.service, version: parseVersion(o.ResourceVersion), slice: o.slice}
	si := s.imports[o.service]
	unneeded := si != nil && si.Kind == zone.ClusterSetIP
	if unneeded {
		h.slice = nil
	}
	if before := s.slices[name]; before != nil {
		*before = *h
	} else {
		s.slices[name] = h
		s.slicesByKey[o.service] = append(s.slicesByKey[o.service], h)
	}
	if !unneeded {
		s.markDirty(o.service)
	}
}

func (s *state) removeSlice(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteSlice(namespace + "/" + name)
}

// forget drops a slice. The caller holds the lock.
func (s *state) deleteSlice(name string) {
	h := s.slices[name]
	if h == nil {
		return
	}
	delete(s.slices, name)
	rest := s.slicesByKey[h.key]
	if i := slices.Index(rest, h); i >= 0 {
		rest = slices.Delete(rest, i, i+1)
	}
	if s.slicesByKey[h.key] = rest; len(rest) == 0 {
		delete(s.slicesByKey, h.key)
	}
	if si := s.imports[h.key]; si == nil || si.Kind != zone.ClusterSetIP {
		s.markDirty(h.key)
	}
}

// keepOnlyImports drops the imports that a list did not have.
func (s *state) retainImports(listed map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.imports {
		if !listed[key] {
			delete(s.imports, key)
			s.markDirty(key)
		}
	}
}

// keepOnlySlices drops the slices that a list did not have.
func (s *state) retainSlices(listed map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.slices {
		if !listed[name] {
			s.deleteSlice(name)
		}
	}
}

// refill gives slices their content back that was not kept. A slice that is not there is left alone: either it was deleted since,
// or the watch is about to bring it; so is one of which the watch has told something newer.
func (s *state) restoreContent(objects []*sliceObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		h := s.slices[o.Namespace+"/"+o.Name]
		if h == nil || h.key != o.service || h.slice != nil || h.version > parseVersion(o.ResourceVersion) {
			continue
		}
		h.slice, h.version = o.slice, parseVersion(o.ResourceVersion)
		s.markDirty(h.key)
	}
}

// fetched tells whether all slices of a service are there, or not needed, and if so that nobody asks for them any more.
func (s *state) fetchDone(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if si := s.imports[key]; si != nil && si.Kind != zone.ClusterSetIP {
		for _, h := range s.slicesByKey[key] {
			if h.slice == nil {
				return false
			}
		}
	}
	delete(s.fetching, key)
	return true
}

// setLocality changes who we are; every answer that depends on it is built again.
func (s *state) setLocality(change func(*zone.Locality)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.locality
	change(&s.locality)
	if s.locality == before {
		return
	}
	for key, si := range s.imports {
		if si.Kind != zone.ClusterSetIP {
			s.markDirty(key)
		}
	}
}

// job is one service to build.
type job struct {
	key      string
	service  *zone.Service // nil when it is gone
	locality zone.Locality
	// missing is set when content of its slices must be fetched first, fetch when nobody does that yet.
	incomplete, fetch bool
	since             time.Time
}

// next takes one service that must be built again, if there is any.
func (s *state) nextJob() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, since := range s.dirty {
		delete(s.dirty, key)
		j := job{key: key, locality: s.locality, since: since}
		si := s.imports[key]
		if si == nil {
			return j, true
		}
		service := *si
		if service.Kind != zone.ClusterSetIP {
			for _, h := range s.slicesByKey[key] {
				j.incomplete = j.incomplete || h.slice == nil
				service.Slices = append(service.Slices, h.slice)
			}
		}
		j.service = &service
		j.fetch = j.incomplete && !s.fetching[key]
		if j.fetch {
			s.fetching[key] = true
		}
		return j, true
	}
	return job{}, false
}

// versionOf makes resource versions comparable, which the API server's are (KEP-5504). What is not a number counts as oldest.
func parseVersion(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
