package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const (
	// annotationAddress of the bare chain's object has the address for its slice.
	annotationAddress = "bench/address"
	// bareIP is the clusterset IP of all ServiceImports of the bare chain.
	bareIP = "243.0.0.1"
)

// bareChain is the least that could propagate a service from one cluster to another: a watch on one
// API server and writes to the other. It has no broker, does not merge, writes no status, and does
// not read existing objects.
type bareChain struct {
	from, to *server
	mu       sync.Mutex
	objects  map[string]*mcsv1beta1.ServiceImport  // as last watched; nil when deleted
	slices   map[string]*discoveryv1.EndpointSlice // as last written
	fail     context.CancelCauseFunc               // ends what waits for the chain
}

// startBareChain starts a bare chain that runs until ctx ends. It calls fail when it cannot
// continue.
func startBareChain(ctx context.Context, e *environment, fail context.CancelCauseFunc) (*bareChain, error) {
	c := &bareChain{
		from: e.exporter, to: e.importer, fail: fail,
		objects: map[string]*mcsv1beta1.ServiceImport{}, slices: map[string]*discoveryv1.EndpointSlice{},
	}
	watcher, err := c.from.client.Watch(ctx, &mcsv1beta1.ServiceImportList{}, client.InNamespace(bareNamespace))
	if err != nil {
		return nil, err
	}
	queue := workqueue.NewTyped[string]()
	go func() {
		<-ctx.Done()
		watcher.Stop()
		queue.ShutDown()
	}()
	go func() {
		for event := range watcher.ResultChan() {
			obj, ok := event.Object.(*mcsv1beta1.ServiceImport)
			if !ok {
				continue
			}
			c.mu.Lock()
			c.objects[obj.Name] = obj
			if event.Type == watch.Deleted {
				c.objects[obj.Name] = nil
			}
			c.mu.Unlock()
			queue.Add(obj.Name)
		}
		fail(errors.New("bare chain: the API server ended the watch")) // has no effect after ctx ended
	}()
	for range workers {
		go c.work(ctx, queue)
	}
	return c, nil
}

func (c *bareChain) work(ctx context.Context, queue workqueue.TypedInterface[string]) {
	for {
		name, down := queue.Get()
		if down {
			return
		}
		if err := c.propagate(ctx, name); err != nil {
			c.fail(fmt.Errorf("bare chain: %s: %w", name, err))
		}
		queue.Done(name)
	}
}

// propagate writes one service to the other cluster.
func (c *bareChain) propagate(ctx context.Context, name string) error {
	c.mu.Lock()
	obj, slice := c.objects[name], c.slices[name]
	c.mu.Unlock()
	switch {
	case obj == nil && slice == nil:
		return nil
	case obj == nil:
		if err := c.to.client.Delete(ctx, bareImport(name, "")); err != nil {
			return err
		}
		if err := c.to.client.Delete(ctx, bareSlice(name, "")); err != nil {
			return err
		}
		slice = nil
	case slice == nil:
		if err := c.to.client.Create(ctx, bareImport(name, "")); err != nil {
			return err
		}
		slice = bareSlice(name, obj.Annotations[annotationAddress])
		if err := c.to.client.Create(ctx, slice); err != nil {
			return err
		}
	default:
		slice = slice.DeepCopy()
		slice.Endpoints[0].Addresses = []string{obj.Annotations[annotationAddress]}
		if err := c.to.client.Update(ctx, slice); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slices[name] = slice
	return nil
}

// clear deletes all objects of the bare chain in both clusters, without its workers.
func (c *bareChain) clear(ctx context.Context) error {
	c.mu.Lock()
	clear(c.slices)
	c.mu.Unlock()
	for _, s := range []*server{c.from, c.to} {
		for _, obj := range []client.Object{&mcsv1beta1.ServiceImport{}, &discoveryv1.EndpointSlice{}} {
			if err := s.client.DeleteAllOf(ctx, obj, client.InNamespace(bareNamespace)); err != nil {
				return fmt.Errorf("clear namespace %s on %s: %w", bareNamespace, s.name, err)
			}
		}
	}
	return nil
}

func bareImport(name, address string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: bareNamespace, Name: name, Annotations: map[string]string{annotationAddress: address}},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: []string{bareIP}, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}},
		},
	}
}

func bareSlice(name, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: bareNamespace, Name: name, Labels: map[string]string{mcsv1beta1.LabelServiceName: name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
	}
}

// barePropagator propagates services by the bare chain.
type barePropagator struct {
	chain      *bareChain
	observer   *observer
	newAddress func() string
}

func (s barePropagator) export(ctx context.Context, name string) (time.Time, error) {
	start := time.Now()
	return start, s.chain.from.client.Create(ctx, bareImport(name, s.newAddress()))
}

func (s barePropagator) change(ctx context.Context, name, address string) (time.Time, error) {
	obj := bareImport(name, address)
	if err := s.chain.from.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return time.Time{}, err
	}
	obj.Annotations[annotationAddress] = address
	start := time.Now()
	return start, s.chain.from.client.Update(ctx, obj)
}

func (s barePropagator) unexport(ctx context.Context, name string) (time.Time, error) {
	start := time.Now()
	return start, s.chain.from.client.Delete(ctx, bareImport(name, ""))
}

func (s barePropagator) importObserver() *observer { return s.observer }

// agentPropagator propagates services by the agents.
type agentPropagator struct {
	from     *server
	observer *observer
}

func (s agentPropagator) export(ctx context.Context, name string) (time.Time, error) {
	start := time.Now()
	return start, s.from.client.Create(ctx, newExport(name))
}

func (s agentPropagator) change(ctx context.Context, name, address string) (time.Time, error) {
	slice := &discoveryv1.EndpointSlice{}
	if err := s.from.client.Get(ctx, types.NamespacedName{Namespace: benchNamespace, Name: sliceName(name)}, slice); err != nil {
		return time.Time{}, err
	}
	slice.Endpoints[0].Addresses = []string{address}
	start := time.Now()
	return start, s.from.client.Update(ctx, slice)
}

func (s agentPropagator) unexport(ctx context.Context, name string) (time.Time, error) {
	start := time.Now()
	return start, s.from.client.Delete(ctx, newExport(name))
}

func (s agentPropagator) importObserver() *observer { return s.observer }
