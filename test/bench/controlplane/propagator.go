package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// propagator propagates services from one cluster to another. The agents are one, the bare chain is
// the other. Each step returns the time of its start.
type propagator interface {
	export(ctx context.Context, name string) (time.Time, error)
	change(ctx context.Context, name, address string) (time.Time, error)
	unexport(ctx context.Context, name string) (time.Time, error)
	// importObserver returns the observer of the importing cluster.
	importObserver() *observer
}

func newExport(name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: name}}
}

// sliceName returns the name of the slice that serve creates for a service.
func sliceName(service string) string { return service + "-abc" }

// serve creates n Services with some endpoints each.
func (e *environment) serve(ctx context.Context, prefix string, n, endpoints int) error {
	return e.serveAt(ctx, prefix, n, func() []string {
		ips := make([]string, endpoints)
		for i := range ips {
			ips[i] = e.newAddress()
		}
		return ips
	})
}

// serveAt creates n Services with endpoints at these addresses.
func (e *environment) serveAt(ctx context.Context, prefix string, n int, addresses func() []string) error {
	return harness.Parallel(workers, n, func(i int) error {
		svc := fleet.NewService(benchNamespace, serviceName(prefix, i))
		if err := e.exporter.client.Create(ctx, svc); err != nil {
			return fmt.Errorf("create Service %s: %w", svc.Name, err)
		}
		slice := fleet.NewSlice(svc, "abc", addresses()...)
		if err := e.exporter.client.Create(ctx, slice); err != nil {
			return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
		}
		return nil
	})
}

func serviceName(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// withPropagators runs f with both propagators.
func withPropagators(
	ctx context.Context, e *environment, f func(ctx context.Context, agents agentPropagator, bare barePropagator) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	chain, err := startBareChain(ctx, e, cancel)
	if err != nil {
		return err
	}
	bareObserver, err := observe(ctx, e.importer, bareNamespace, false)
	if err != nil {
		return err
	}
	agentObserver, err := observe(ctx, e.importer, benchNamespace, e.plane.DerivesService)
	if err != nil {
		return err
	}
	agents := agentPropagator{from: e.exporter, observer: agentObserver}
	return f(ctx, agents, barePropagator{chain: chain, observer: bareObserver, newAddress: e.newAddress})
}
