package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// observer watches one namespace of a cluster and records when each fact was first seen.
type observer struct {
	mu    sync.Mutex
	facts map[string]*fact
}

type fact struct {
	seen chan struct{} // closed once the fact was seen
	at   time.Time
}

// The facts: an import or a slice of a service exists, an import was deleted, an endpoint has an
// address.
func importExists(service string) string  { return "import " + service }
func sliceExists(service string) string   { return "slice " + service }
func importDeleted(service string) string { return "no import " + service }
func addressSeen(ip string) string        { return "address " + ip }

// observe watches the ServiceImports and EndpointSlices of a namespace until ctx ends.
func observe(ctx context.Context, s *server, namespace string) (*observer, error) {
	observer := &observer{facts: map[string]*fact{}}
	for _, list := range []client.ObjectList{&mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}} {
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
	switch obj := event.Object.(type) {
	case *mcsv1beta1.ServiceImport:
		if event.Type == watch.Deleted {
			o.markSeen(importDeleted(obj.Name), at)
		} else {
			o.markSeen(importExists(obj.Name), at)
		}
	case *discoveryv1.EndpointSlice:
		if event.Type == watch.Deleted {
			return
		}
		o.markSeen(sliceExists(obj.Labels[mcsv1beta1.LabelServiceName]), at)
		for i := range obj.Endpoints {
			for _, address := range obj.Endpoints[i].Addresses {
				o.markSeen(addressSeen(address), at)
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
			return last, fmt.Errorf("waiting for %s in the other cluster: %w", what, context.Cause(ctx))
		case <-f.seen:
		}
		if f.at.After(last) {
			last = f.at
		}
	}
	return last, nil
}
