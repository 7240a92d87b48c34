package apply

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"

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
		s.Annotations = withoutDigest(s.Annotations) // copied from the broker, where any member can set it
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
			updated.Endpoints, updated.Ports = s.Endpoints, s.Ports
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
	return maps.Equal(have.Labels, want.Labels) && maps.Equal(withoutDigest(have.Annotations), want.Annotations) &&
		SameOwners(have.OwnerReferences, want.OwnerReferences) && digestOf(have) == digestOf(want)
}

// AnnotationDigest holds the digest of the endpoints and ports that ReplaceByDigest removed. It
// exists only in the agent's cache and is never written to an API server.
const AnnotationDigest = "seamark.dev/content-digest"

// digestKey makes digests differ between processes. A client that writes the annotation to an API
// server can therefore not hide a change of the endpoints: its value matches no digest.
var digestKey = rand.Text()

// ReplaceByDigest replaces the endpoints and ports of a slice by a digest of them. It is for caches
// of slices that are only compared with their desired state; DiffSlices accepts such slices in
// have. A slice that already has a digest keeps it, because caches may transform an object twice.
func ReplaceByDigest(s *discoveryv1.EndpointSlice) {
	if _, replaced := s.Annotations[AnnotationDigest]; !replaced {
		digest := digestOf(s)
		if s.Annotations == nil {
			s.Annotations = make(map[string]string, 1)
		}
		s.Annotations[AnnotationDigest] = digest
	}
	s.Endpoints, s.Ports = nil, nil
}

// digestOf returns a digest of the endpoints and ports of a slice. It is cryptographic because
// endpoints come from other clusters, which must not be able to craft a collision.
func digestOf(s *discoveryv1.EndpointSlice) string {
	if digest, replaced := s.Annotations[AnnotationDigest]; replaced {
		return digest
	}
	bare := discoveryv1.EndpointSlice{Endpoints: s.Endpoints, Ports: s.Ports}
	bytes, err := bare.Marshal()
	if err != nil {
		panic(err) // marshalling to memory cannot fail
	}
	sum := sha256.Sum256(append(bytes, digestKey...))
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

func withoutDigest(annotations map[string]string) map[string]string {
	if _, replaced := annotations[AnnotationDigest]; !replaced {
		return annotations
	}
	rest := maps.Clone(annotations)
	delete(rest, AnnotationDigest)
	return rest
}
