package bench

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// Imported is what a cluster holds of an imported service, as its watches show it: the
// ServiceImport, imported slices, and with the data plane service the derived Service.
type Imported struct {
	// NeedsDerived reports whether the data plane needs a derived Service. Where it is not known,
	// the slices show it: they name the derived Service.
	NeedsDerived bool

	service   *mcsv1beta1.ServiceImport
	slices    map[string]*discoveryv1.EndpointSlice
	derived   bool
	wasUsable bool
}

// ServiceOf returns the name of the imported service that an object belongs to, or "" if it belongs
// to none.
func ServiceOf(obj runtime.Object) string {
	switch obj := obj.(type) {
	case *mcsv1beta1.ServiceImport:
		return obj.Name
	case *discoveryv1.EndpointSlice:
		return obj.Labels[mcsv1beta1.LabelServiceName]
	case *corev1.Service:
		if of, ok := objects.DerivedFrom(obj); ok {
			return of.Name
		}
	}
	return ""
}

// Update takes an event of a watch about an object of this service.
func (i *Imported) Update(event watch.Event) {
	exists := event.Type != watch.Deleted
	switch obj := event.Object.(type) {
	case *mcsv1beta1.ServiceImport:
		i.service = nil
		if exists {
			i.service = obj
		}
	case *discoveryv1.EndpointSlice:
		if i.slices == nil {
			i.slices = map[string]*discoveryv1.EndpointSlice{}
		}
		i.slices[obj.Name] = obj
		if !exists {
			delete(i.slices, obj.Name)
		}
	case *corev1.Service:
		i.derived = exists
	}
	i.wasUsable = i.wasUsable || i.Usable()
}

// HasObjects reports whether the ServiceImport exists, and a slice with an endpoint that the data
// plane can send clients to.
func (i *Imported) HasObjects() bool {
	return i.service != nil && slices.ContainsFunc(slices.Collect(maps.Values(i.slices)), func(s *discoveryv1.EndpointSlice) bool {
		return (!i.NeedsDerived || namesDerived(s)) &&
			slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
	})
}

// HasIP reports whether the ServiceImport has its clusterset IP.
func (i *Imported) HasIP() bool { return i.service != nil && len(i.service.Spec.IPs) > 0 }

// Usable reports whether clients in this cluster can use the service as soon as DNS and data plane
// have read its objects: it has its clusterset IP and a ready endpoint, and the derived Service
// exists if one is needed.
func (i *Imported) Usable() bool {
	needsDerived := i.NeedsDerived || slices.ContainsFunc(slices.Collect(maps.Values(i.slices)), namesDerived)
	return i.HasObjects() && i.HasIP() && (i.derived || !needsDerived)
}

// Gone reports whether the service was usable and nothing of it is left.
func (i *Imported) Gone() bool {
	return i.wasUsable && i.service == nil && !i.derived && len(i.slices) == 0
}

// HasEndpoint reports whether an endpoint has the address.
func (i *Imported) HasEndpoint(ip string) bool {
	for _, slice := range i.slices {
		for j := range slice.Endpoints {
			if slices.Contains(slice.Endpoints[j].Addresses, ip) {
				return true
			}
		}
	}
	return false
}

// namesDerived reports whether a slice names the derived Service, by which proxies of Services find
// slices.
func namesDerived(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelServiceName] == objects.DerivedServiceName(ServiceOf(s))
}
