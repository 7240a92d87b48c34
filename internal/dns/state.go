package dns

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seamark-dev/seamark/internal/dns/zone"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// state holds the objects of the API server as far as answers depend on them. Reflectors write it,
// the controller reads it.
//
// Slices of services with a clusterset IP are not read, if they have LabelClusterSetIP, or else
// stored without their content: no answer needs it, and they are most of the endpoints of a
// clusterset. If such a service becomes headless or classic, its previous answers stay until all
// its slices have been read.
type state struct {
	mu          sync.Mutex
	imports     map[string]*zone.Service
	slices      map[string]*storedSlice   // by namespace/name
	slicesByKey map[string][]*storedSlice // by the service's key
	locality    zone.Locality
	unreachable reachable.Unreachables // with cluster ids in lower case
	// dirty are the services to rebuild, with the time of the first event that made each dirty.
	dirty map[string]time.Time
	wake  chan struct{}
	// fetching are the services whose slices are being read again.
	fetching map[string]bool
	// unconfirmed are services that had a clusterset IP until now: their slices may not have been
	// delivered by the watch yet.
	unconfirmed map[string]bool
}

// storedSlice is an EndpointSlice. slice is nil if its content was not stored.
type storedSlice struct {
	key     string
	version uint64
	slice   *zone.Slice
}

func newState(l zone.Locality) *state {
	return &state{
		imports: map[string]*zone.Service{}, slices: map[string]*storedSlice{}, slicesByKey: map[string][]*storedSlice{},
		locality: l, dirty: map[string]time.Time{}, wake: make(chan struct{}, 1), fetching: map[string]bool{}, unconfirmed: map[string]bool{},
	}
}

// markDirty marks a service to be rebuilt. The caller holds the lock.
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
	if o.internal {
		s.removeImport(o.Service.Namespace, o.Service.Name)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := zone.Key(o.Service.Namespace, o.Service.Name)
	if before := s.imports[key]; before != nil && before.Kind == zone.ClusterSetIP && o.Kind != zone.ClusterSetIP {
		s.unconfirmed[key] = true
	}
	service := o.Service // a copy, so that the object's metadata can be freed
	s.imports[key] = &service
	if o.Kind == zone.ClusterSetIP {
		delete(s.unconfirmed, key)
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
	delete(s.unconfirmed, key)
	s.markDirty(key)
}

func (s *state) setSlice(o *sliceObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := o.Namespace + "/" + o.Name
	if before := s.slices[name]; before != nil && before.key != o.service {
		s.deleteSlice(name) // its label changed: it belongs to another service now
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

// deleteSlice deletes a slice. The caller holds the lock.
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

// retainImports removes the imports that are not in a list.
func (s *state) retainImports(listed map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.imports {
		if !listed[key] {
			delete(s.imports, key)
			delete(s.unconfirmed, key)
			s.markDirty(key)
		}
	}
}

// retainSlices removes the slices that are not in a list.
func (s *state) retainSlices(listed map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.slices {
		if !listed[name] {
			s.deleteSlice(name)
		}
	}
}

// restoreContent sets the content of slices that are stored without it. objects are all slices of a
// service. It ignores a slice that is not stored: it was deleted since, or the watch has not
// delivered it yet. It also ignores a slice of which the watch has delivered a newer version.
func (s *state) restoreContent(key string, objects []*sliceObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(objects, func(o *sliceObject) bool { return s.slices[o.Namespace+"/"+o.Name] == nil }) && s.unconfirmed[key] {
		delete(s.unconfirmed, key)
		s.markDirty(key)
	}
	for _, o := range objects {
		h := s.slices[o.Namespace+"/"+o.Name]
		if h == nil || h.key != o.service || h.slice != nil || h.version > parseVersion(o.ResourceVersion) {
			continue
		}
		h.slice, h.version = o.slice, parseVersion(o.ResourceVersion)
		s.markDirty(h.key)
	}
}

// fetchDone reports whether all slices of a service are complete or not needed, and if so ends its
// fetching.
func (s *state) fetchDone(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if si := s.imports[key]; si != nil && si.Kind != zone.ClusterSetIP {
		if s.unconfirmed[key] {
			return false
		}
		for _, h := range s.slicesByKey[key] {
			if h.slice == nil {
				return false
			}
		}
	}
	delete(s.fetching, key)
	return true
}

// setLocality changes where this server is and marks every service whose answers depend on it.
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

// job is a service to rebuild.
type job struct {
	key      string
	service  *zone.Service // nil if it was removed
	locality zone.Locality
	// incomplete is set if a slice lacks its content. fetch is set if it is not being read yet.
	incomplete, fetch bool
	since             time.Time
}

// nextJob removes one service from the dirty ones and returns it.
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
			j.incomplete = s.unconfirmed[key]
			for _, h := range s.slicesByKey[key] {
				j.incomplete = j.incomplete || h.slice == nil
				service.Slices = append(service.Slices, h.slice)
			}
			if !j.incomplete {
				service.Slices = leaveOutUnreachable(leaveOutReplaced(service), s.unreachable)
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

// leaveOutReplaced returns the slices of a service without those of Submariner Lighthouse that
// Seamark's replace. Both have the endpoints of one cluster, and Lighthouse's are not kept up to
// date when its agent has stopped. A service that Seamark's agent has taken over has none of
// Lighthouse's.
func leaveOutReplaced(s zone.Service) []*zone.Slice {
	if !slices.ContainsFunc(s.Slices, func(s *zone.Slice) bool { return s.Lighthouse }) {
		return s.Slices
	}
	replaced := map[string]bool{}
	for _, slice := range s.Slices {
		replaced[slice.Cluster] = replaced[slice.Cluster] || !slice.Lighthouse
	}
	return slices.DeleteFunc(slices.Clone(s.Slices), func(slice *zone.Slice) bool {
		return slice.Lighthouse && (s.Managed || replaced[slice.Cluster])
	})
}

// parseVersion makes resource versions comparable, which those of the API server are (KEP-5504). A
// version that is not a number counts as the oldest. Package objects has the same, but would add
// more than a hundred packages to this program.
func parseVersion(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
