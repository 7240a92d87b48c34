package main

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/fleet"
)

// A service of 1,000 endpoints, in slices of the size that the endpointslice controller makes.
const (
	bigSlices   = 10
	bigPerSlice = 100
)

// podChange changes single endpoints of a large service and counts the requests of the agents.
func podChange(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	r.Say("pod changes in a service of %d endpoints", bigSlices*bigPerSlice)
	svc := fleet.NewService(benchNamespace, "big")
	if err := e.exporter.client.Create(ctx, svc); err != nil {
		return err
	}
	for i := range bigSlices {
		ips := make([]string, bigPerSlice)
		for j := range ips {
			ips[j] = e.newAddress()
		}
		if err := e.exporter.client.Create(ctx, fleet.NewSlice(svc, serviceName("part", i), ips...)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	observer, err := observe(ctx, e.importer, benchNamespace, e.plane.DerivesService)
	if err != nil {
		return err
	}
	if err := e.exporter.client.Create(ctx, newExport(svc.Name)); err != nil {
		return err
	}
	if _, err := observer.await(ctx, factUsable(svc.Name)); err != nil {
		return err
	}
	if err := e.awaitNoRequests(ctx, afterSome); err != nil {
		return err
	}
	requests, err := e.requestsDuring(ctx, func() error {
		for i := range size.podMoves {
			slice := &discoveryv1.EndpointSlice{}
			key := types.NamespacedName{Namespace: benchNamespace, Name: svc.Name + "-" + serviceName("part", i%bigSlices)}
			if err := e.exporter.client.Get(ctx, key, slice); err != nil {
				return err
			}
			address := e.newAddress()
			slice.Endpoints[i].Addresses = []string{address}
			if err := e.exporter.client.Update(ctx, slice); err != nil {
				return err
			}
			if _, err := observer.await(ctx, factAddress(address)); err != nil {
				return err
			}
		}
		return e.awaitNoRequests(ctx, afterSome)
	})
	if err != nil {
		return err
	}
	addPodChange(r, size.podMoves, requests)
	return nil
}
