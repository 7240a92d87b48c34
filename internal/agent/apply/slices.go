package apply

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// DiffSlices adds to c the writes that turn the slices in have into those in want. A slice whose
// address type changed is deleted: the type is immutable, and the reconcile that observes the
// deletion creates the new slice.
func DiffSlices(c *Changes, have, want []*discoveryv1.EndpointSlice) {
	byName := make(map[string]*discoveryv1.EndpointSlice, len(have))
	for _, s := range have {
		byName[s.Name] = s
	}
	for _, s := range want {
		old, exists := byName[s.Name]
		delete(byName, s.Name)
		switch {
		case !exists:
			c.Create = append(c.Create, s)
		case old.AddressType != s.AddressType:
			c.Delete = append(c.Delete, old)
		case !sameSlice(old, s):
			updated := old.DeepCopy()
			updated.Labels, updated.Annotations, updated.OwnerReferences = s.Labels, s.Annotations, s.OwnerReferences
			updated.Endpoints, updated.Ports, updated.GenerateName = s.Endpoints, s.Ports, s.GenerateName
			c.Update = append(c.Update, updated)
		}
	}
	for _, s := range have {
		if _, left := byName[s.Name]; left {
			c.Delete = append(c.Delete, s)
		}
	}
}

// sameSlice reports whether a cached slice, whole or with a digest, is what it should be.
func sameSlice(have, want *discoveryv1.EndpointSlice) bool {
	return maps.Equal(have.Labels, want.Labels) && maps.Equal(have.Annotations, want.Annotations) &&
		SameOwners(have.OwnerReferences, want.OwnerReferences) && digestOf(have) == digestOf(want)
}

// digestKey makes digests differ between processes, and digestMark begins each of them. A client
// that writes a digest to an API server can therefore not hide a change of the endpoints: it is not
// taken for one.
var (
	digestKey  = rand.Text()
	digestMark = digestKey[:8] + "/"
)

// ReplaceByDigest replaces the endpoints and ports of a slice by a digest of them. It is for caches
// of slices that are only compared with their desired state; DiffSlices accepts such slices in
// have. The digest takes the place of GenerateName, which is of no use once a slice has a name: a
// map of annotations would need ten times the memory. A slice that already has a digest keeps it,
// because caches may transform an object twice.
func ReplaceByDigest(s *discoveryv1.EndpointSlice) {
	s.GenerateName = digestOf(s)
	s.Endpoints, s.Ports = nil, nil
}

// HasDigest reports whether the endpoints and ports of a cached slice were replaced by a digest.
func HasDigest(s *discoveryv1.EndpointSlice) bool {
	return strings.HasPrefix(s.GenerateName, digestMark)
}

// digestOf returns a digest of the endpoints and ports of a slice. It is cryptographic because
// endpoints come from other clusters, which must not be able to craft a collision.
func digestOf(s *discoveryv1.EndpointSlice) string {
	if HasDigest(s) {
		return s.GenerateName
	}
	bare := discoveryv1.EndpointSlice{Endpoints: s.Endpoints, Ports: s.Ports}
	bytes, err := bare.Marshal()
	if err != nil {
		panic(err) // marshalling to memory cannot fail
	}
	sum := sha256.Sum256(append(bytes, digestKey...))
	return digestMark + base64.RawStdEncoding.EncodeToString(sum[:])
}
