// Package limits decides which services of a member are imported when it publishes more than the
// broker's admin allows: the oldest records stay. It is pure.
package limits

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Usage is what one member publishes. While that is within the limits, every change costs the same,
// however much it is; beyond, it costs at most one step per allowed service.
type Usage struct {
	limits   objects.Limits
	services map[types.NamespacedName]*service
	// order holds the services with a record, the oldest first.
	order            []*service
	endpoints, bytes int
	// admitted is how many services at the start of order are within the limits.
	admitted int
}

type service struct {
	name             types.NamespacedName
	created          time.Time // of the record; zero while there is none
	recordBytes      int
	slices           []slice
	endpoints, bytes int // of the record and all slices
}

// slice is a slice of a service. They are a list: most services have one, for which a map would
// need several times the memory.
type slice struct {
	name             string
	endpoints, bytes int
}

// NewUsage returns the usage of a member that publishes nothing.
func NewUsage() *Usage {
	return &Usage{limits: objects.DefaultLimits, services: map[types.NamespacedName]*service{}}
}

func compare(a, b *service) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name.Namespace, b.name.Namespace), cmp.Compare(a.name.Name, b.name.Name))
}

// Empty reports whether the member publishes nothing.
func (u *Usage) Empty() bool { return len(u.services) == 0 }

// SetLimits sets the limits. It returns the services to which this makes a difference, as do the
// methods below.
func (u *Usage) SetLimits(l objects.Limits) []types.NamespacedName {
	u.limits = l
	return u.recount()
}

// SetRecord adds the record of a service, or replaces it.
func (u *Usage) SetRecord(name types.NamespacedName, created time.Time, bytes int) []types.NamespacedName {
	s := u.of(name)
	if s.created != created {
		u.drop(s)
		s.created = created
		i, _ := slices.BinarySearchFunc(u.order, s, compare)
		u.order = slices.Insert(u.order, i, s)
		u.endpoints, u.bytes = u.endpoints+s.endpoints, u.bytes+s.bytes
		if i < u.admitted {
			u.admitted++ // those that were admitted before are still the first
		}
	}
	u.add(s, 0, bytes-s.recordBytes)
	s.recordBytes = bytes
	return u.recount()
}

// RemoveRecord removes the record of a service.
func (u *Usage) RemoveRecord(name types.NamespacedName) []types.NamespacedName {
	s := u.of(name)
	u.drop(s)
	s.created = time.Time{}
	s.bytes, s.recordBytes = s.bytes-s.recordBytes, 0
	u.forget(s)
	return u.recount()
}

// SetSlice adds or replaces a slice of a service; without endpoints and bytes it removes the slice.
func (u *Usage) SetSlice(name types.NamespacedName, sliceName string, endpoints, bytes int) []types.NamespacedName {
	s := u.of(name)
	if i := slices.IndexFunc(s.slices, func(other slice) bool { return other.name == sliceName }); i >= 0 {
		u.add(s, -s.slices[i].endpoints, -s.slices[i].bytes)
		s.slices = slices.Delete(s.slices, i, i+1)
	}
	if endpoints != 0 || bytes != 0 {
		u.add(s, endpoints, bytes)
		s.slices = append(s.slices, slice{sliceName, endpoints, bytes})
	}
	u.forget(s)
	return u.recount()
}

// Admits reports whether a service is within the limits. A service without a record counts as the
// newest.
func (u *Usage) Admits(name types.NamespacedName) bool {
	if s := u.services[name]; s != nil && !s.created.IsZero() {
		i, _ := slices.BinarySearchFunc(u.order, s, compare)
		return i < u.admitted
	}
	return len(u.order) < u.limits.Services && u.endpoints <= u.limits.Endpoints && u.bytes <= u.limits.Bytes
}

func (u *Usage) of(name types.NamespacedName) *service {
	s := u.services[name]
	if s == nil {
		s = &service{name: name}
		u.services[name] = s
	}
	return s
}

// forget removes a service that has neither a record nor slices.
func (u *Usage) forget(s *service) {
	if s.created.IsZero() && len(s.slices) == 0 {
		delete(u.services, s.name)
	}
}

// drop removes a service from the order.
func (u *Usage) drop(s *service) {
	if s.created.IsZero() {
		return
	}
	i, _ := slices.BinarySearchFunc(u.order, s, compare)
	u.order = slices.Delete(u.order, i, i+1)
	u.endpoints, u.bytes = u.endpoints-s.endpoints, u.bytes-s.bytes
	if i < u.admitted {
		u.admitted--
	}
}

func (u *Usage) add(s *service, endpoints, bytes int) {
	s.endpoints, s.bytes = s.endpoints+endpoints, s.bytes+bytes
	if !s.created.IsZero() {
		u.endpoints, u.bytes = u.endpoints+endpoints, u.bytes+bytes
	}
}

// recount finds out again how many services are within the limits.
func (u *Usage) recount() []types.NamespacedName {
	before := min(u.admitted, len(u.order))
	if len(u.order) <= u.limits.Services && u.endpoints <= u.limits.Endpoints && u.bytes <= u.limits.Bytes {
		u.admitted = len(u.order)
	} else {
		u.admitted = 0
		for endpoints, bytes := 0, 0; u.admitted < min(len(u.order), u.limits.Services); u.admitted++ {
			endpoints, bytes = endpoints+u.order[u.admitted].endpoints, bytes+u.order[u.admitted].bytes
			if endpoints > u.limits.Endpoints || bytes > u.limits.Bytes {
				break
			}
		}
	}
	var affected []types.NamespacedName
	for _, s := range u.order[min(before, u.admitted):max(before, u.admitted)] {
		affected = append(affected, s.name)
	}
	return affected
}

// DerivedShare returns how many derived Services a cluster with these Service ranges may have: half
// of the addresses of its smaller family. Ranges that are not known do not limit.
func DerivedShare(ranges []netip.Prefix) int {
	sizes := map[bool]int{}
	for _, r := range ranges {
		sizes[r.Addr().Is4()] += 1 << min(r.Addr().BitLen()-r.Bits(), 40)
	}
	share := math.MaxInt
	for _, size := range sizes {
		share = min(share, size/2)
	}
	return share
}
