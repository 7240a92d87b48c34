package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// observer watches one namespace of the importing cluster and records when each fact was first
// seen.
type observer struct {
	// derives reports whether the data plane needs a derived Service.
	derives  bool
	mu       sync.Mutex
	facts    map[string]*fact
	services map[string]*imported
}

type fact struct {
	seen chan struct{} // closed once the fact was seen
	at   time.Time
}

// imported is what the importing cluster holds of a service.
type imported struct {
	exists, hasIP, hasDerived bool
	// slices by name, and whether each has an endpoint that a client can reach.
	slices map[string]bool
}

// The facts about a service: its ServiceImport and a slice with a ready endpoint exist, its
// ServiceImport has a clusterset IP, both at the same time, and nothing of it is left. And the fact
// that an endpoint has an address.
func factObjects(service string) string { return "ServiceImport and slice of " + service }
func factIP(service string) string      { return "clusterset IP of " + service }
func factUsable(service string) string  { return service + " usable" }
func factGone(service string) string    { return service + " gone" }
func factAddress(ip string) string      { return "address " + ip }

// observe watches the ServiceImports, EndpointSlices and Services of a namespace until ctx ends.
func observe(ctx context.Context, s *server, namespace string, derives bool) (*observer, error) {
	observer := &observer{derives: derives, facts: map[string]*fact{}, services: map[string]*imported{}}
	for _, list := range []client.ObjectList{&mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}, &corev1.ServiceList{}} {
		watcher, err := s.client.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			return nil, fmt.Errorf("watch %T on %s: %w", list, s.name, err)
		}
		go func() {
			<-ctx.Done()
			watcher.Stop()
		}()
		go func() {
			for event := range watcher.ResultChan() {
				observer.record(event, time.Now())
			}
		}()
	}
	return observer, nil
}

func (o *observer) record(event watch.Event, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	exists := event.Type != watch.Deleted
	switch obj := event.Object.(type) {
	case *mcsv1beta1.ServiceImport:
		service := o.service(obj.Name)
		service.exists, service.hasIP = exists, exists && len(obj.Spec.IPs) > 0
		o.judge(obj.Name, at)
	case *discoveryv1.EndpointSlice:
		name := obj.Labels[mcsv1beta1.LabelServiceName]
		if name == "" {
			return // of a Service of this cluster
		}
		o.service(name).slices[obj.Name] = o.isReachable(name, obj)
		if !exists {
			delete(o.service(name).slices, obj.Name)
		}
		o.judge(name, at)
		for i := range obj.Endpoints {
			for _, address := range obj.Endpoints[i].Addresses {
				o.markSeen(factAddress(address), at)
			}
		}
	case *corev1.Service:
		if of, ok := objects.DerivedFrom(obj); ok {
			o.service(of.Name).hasDerived = exists
			o.judge(of.Name, at)
		}
	}
}

// isReachable reports whether clients of a service can use an endpoint of the slice. A proxy of
// Services finds slices by the name of the derived Service.
func (o *observer) isReachable(service string, slice *discoveryv1.EndpointSlice) bool {
	if o.derives && slice.Labels[discoveryv1.LabelServiceName] != objects.DerivedServiceName(service) {
		return false
	}
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
}

// judge records the facts about a service that hold now.
func (o *observer) judge(name string, at time.Time) {
	s := o.services[name]
	hasObjects := s.exists && slices.Contains(slices.Collect(maps.Values(s.slices)), true)
	if hasObjects {
		o.markSeen(factObjects(name), at)
	}
	if s.hasIP {
		o.markSeen(factIP(name), at)
	}
	if hasObjects && s.hasIP && s.hasDerived == o.derives {
		o.markSeen(factUsable(name), at)
	}
	// An agent may replace a slice while a service becomes usable: nothing is gone before.
	if !o.fact(factUsable(name)).at.IsZero() && !s.exists && !s.hasDerived && len(s.slices) == 0 {
		o.markSeen(factGone(name), at)
	}
}

func (o *observer) service(name string) *imported {
	s := o.services[name]
	if s == nil {
		s = &imported{slices: map[string]bool{}}
		o.services[name] = s
	}
	return s
}

func (o *observer) markSeen(what string, at time.Time) {
	f := o.fact(what)
	if f.at.IsZero() {
		f.at = at
		close(f.seen)
	}
}

func (o *observer) fact(what string) *fact {
	f := o.facts[what]
	if f == nil {
		f = &fact{seen: make(chan struct{})}
		o.facts[what] = f
	}
	return f
}

// await waits until all facts have been seen and returns when the last one was.
func (o *observer) await(ctx context.Context, facts ...string) (time.Time, error) {
	var last time.Time
	for _, what := range facts {
		o.mu.Lock()
		f := o.fact(what)
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting in the importing cluster for %s: %w", what, context.Cause(ctx))
		case <-f.seen:
		}
		if f.at.After(last) {
			last = f.at
		}
	}
	return last, nil
}
