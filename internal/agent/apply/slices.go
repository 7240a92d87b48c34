package apply

import (
	"crypto/sha256"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// DiffSlices adds to c what turns the slices that are into those that should be. A slice whose address type changed is
// deleted: the type is immutable, and the reconcile that sees it gone creates the new one.
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
			updated.Endpoints, updated.Ports = s.Endpoints, s.Ports
			updated.SetSelfLink("")
			c.Update = append(c.Update, updated)
		}
	}
	for _, s := range have {
		if _, left := byName[s.Name]; left {
			c.Delete = append(c.Delete, s)
		}
	}
}

func sameSlice(a, b *discoveryv1.EndpointSlice) bool {
	return contentDigest(a) == contentDigest(b) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

const shortened = "digest:"

// Shorten replaces endpoints and ports by a digest of them, for caches of slices that are only ever compared with what they should be: DiffSlices
// takes such slices as what is. The digest is kept in a field that no API server uses any more, and is never written.
func ReplaceByDigest(s *discoveryv1.EndpointSlice) {
	if len(s.Endpoints)+len(s.Ports) == 0 && strings.HasPrefix(s.GetSelfLink(), shortened) {
		return // done before
	}
	s.SetSelfLink("")
	s.SetSelfLink(contentDigest(s))
	s.Endpoints, s.Ports = nil, nil
}

// content tells endpoints and ports apart from others. It is a digest that cannot be forged: endpoints come from other clusters.
func contentDigest(s *discoveryv1.EndpointSlice) string {
	if digest := s.GetSelfLink(); strings.HasPrefix(digest, shortened) {
		return digest
	}
	bare := discoveryv1.EndpointSlice{Endpoints: s.Endpoints, Ports: s.Ports}
	bytes, err := bare.Marshal()
	if err != nil {
		panic(err) // memory holds nothing that cannot be written down
	}
	sum := sha256.Sum256(bytes)
	return shortened + string(sum[:])
}
