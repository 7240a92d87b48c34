package apply

import (
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
	return equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints) && equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}
