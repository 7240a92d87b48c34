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

// sight is what a user of a cluster can see in one namespace, and when it was first seen there by a watch.
type sight struct {
	mu   sync.Mutex
	seen map[string]*fact
}

type fact struct {
	known chan struct{} // closed once it is
	at    time.Time
}

// The facts: an import or a slice of a service is there, an import is gone, an address is among the endpoints.
func importOf(service string) string   { return "import " + service }
func sliceOf(service string) string    { return "slice " + service }
func importGone(service string) string { return "no import " + service }
func addressSeen(ip string) string     { return "address " + ip }

// look watches ServiceImports and EndpointSlices of a namespace until ctx ends. The namespace must be empty.
func look(ctx context.Context, s *server, namespace string) (*sight, error) {
	sight := &sight{seen: map[string]*fact{}}
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
				sight.note(event, time.Now())
			}
		}()
	}
	return sight, nil
}

func (s *sight) note(event watch.Event, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch obj := event.Object.(type) {
	case *mcsv1beta1.ServiceImport:
		if event.Type == watch.Deleted {
			s.learn(importGone(obj.Name), at)
		} else {
			s.learn(importOf(obj.Name), at)
		}
	case *discoveryv1.EndpointSlice:
		if event.Type == watch.Deleted {
			return
		}
		s.learn(sliceOf(obj.Labels[mcsv1beta1.LabelServiceName]), at)
		for i := range obj.Endpoints {
			for _, address := range obj.Endpoints[i].Addresses {
				s.learn(addressSeen(address), at)
			}
		}
	}
}

func (s *sight) learn(what string, at time.Time) {
	f := s.fact(what)
	if f.at.IsZero() {
		f.at = at
		close(f.known)
	}
}

func (s *sight) fact(what string) *fact {
	f := s.seen[what]
	if f == nil {
		f = &fact{known: make(chan struct{})}
		s.seen[what] = f
	}
	return f
}

// await waits until all of it has been seen and returns when the last was.
func (s *sight) await(ctx context.Context, facts ...string) (time.Time, error) {
	var last time.Time
	for _, what := range facts {
		s.mu.Lock()
		f := s.fact(what)
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for %s in the other cluster: %w", what, context.Cause(ctx))
		case <-f.known:
		}
		if f.at.After(last) {
			last = f.at
		}
	}
	return last, nil
}
