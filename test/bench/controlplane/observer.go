package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/cli/bench"
)

// observer watches one namespace of the importing cluster and records when each fact was first
// seen.
type observer struct {
	// derives reports whether the data plane needs a derived Service.
	derives  bool
	mu       sync.Mutex
	facts    map[string]*fact
	services map[string]*bench.Imported
}

type fact struct {
	seen chan struct{} // closed once the fact was seen
	at   time.Time
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
	observer := &observer{derives: derives, facts: map[string]*fact{}, services: map[string]*bench.Imported{}}
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
	name := bench.ServiceOf(event.Object)
	if name == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	service := o.services[name]
	if service == nil {
		service = &bench.Imported{NeedsDerived: o.derives}
		o.services[name] = service
	}
	service.Update(event)
	for what, holds := range map[string]bool{
		factObjects(name): service.HasObjects(), factIP(name): service.HasIP(), factUsable(name): service.Usable(), factGone(name): service.Gone(),
	} {
		if holds {
			o.markSeen(what, at)
		}
	}
	if slice, ok := event.Object.(*discoveryv1.EndpointSlice); ok && event.Type != watch.Deleted {
		for i := range slice.Endpoints {
			for _, address := range slice.Endpoints[i].Addresses {
				o.markSeen(factAddress(address), at)
			}
		}
	}
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
