package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
)

// carrier is what brings services of one cluster to another: the agents, or the bare chain. Each step returns when it began.
type carrier interface {
	export(ctx context.Context, name string) (time.Time, error)
	change(ctx context.Context, name, address string) (time.Time, error)
	unexport(ctx context.Context, name string) (time.Time, error)
	// sees is what the other cluster sees of it.
	sees() *sight
}

var addresses atomic.Uint32

// newAddress is an address nobody used before.
func newAddress() string {
	n := addresses.Add(1)
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16&127, n>>8&255, n&255)
}

func newExport(name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: name}}
}

// sliceName is the name fleet.NewSlice gives with the suffix that serve uses.
func sliceName(service string) string { return service + "-abc" }

// serve creates n Services with some endpoints each.
func (b *bed) serve(ctx context.Context, prefix string, n, endpoints int) error {
	return side(n, func(i int) error {
		svc := fleet.NewService(benchNamespace, nameOf(prefix, i))
		if err := b.a.client.Create(ctx, svc); err != nil {
			return fmt.Errorf("create Service %s: %w", svc.Name, err)
		}
		ips := make([]string, endpoints)
		for i := range ips {
			ips[i] = newAddress()
		}
		slice := fleet.NewSlice(svc, "abc", ips...)
		if err := b.a.client.Create(ctx, slice); err != nil {
			return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
		}
		return nil
	})
}

func nameOf(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// withCarriers runs f with both carriers and whatever they need at work.
func withCarriers(ctx context.Context, b *bed, f func(ctx context.Context, agents agentSide, bare bareSide) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chain, err := startBareChain(ctx, b)
	if err != nil {
		return err
	}
	bareSight, err := look(ctx, b.b, bareNamespace)
	if err != nil {
		return err
	}
	agentSight, err := look(ctx, b.b, benchNamespace)
	if err != nil {
		return err
	}
	return f(ctx, agentSide{from: b.a, sight: agentSight}, bareSide{chain: chain, sight: bareSight})
}
