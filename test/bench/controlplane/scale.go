package main

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// endpointsAtScale is how many endpoints each service has when memory is measured with many
// services.
const endpointsAtScale = 10

// manyServices measures the agents' memory with as many services as the design has a budget for.
// Earlier services are unexported and the agents restarted, so that these do not affect it.
func manyServices(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	if size.scale == 0 {
		return nil
	}
	r.Say("%d services of %d endpoints", size.scale, endpointsAtScale)
	if err := e.exporter.client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(benchNamespace)); err != nil {
		return err
	}
	if err := e.awaitNoRequests(ctx, afterBurst); err != nil {
		return err
	}
	for _, m := range e.members() {
		m.member.Stop()
		if err := m.member.StartBinary(e.agent, e.agentArgs...); err != nil {
			return err
		}
	}
	if err := e.serve(ctx, "scale", size.scale, endpointsAtScale); err != nil {
		return err
	}
	before := e.usage()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	observer, err := observe(ctx, e.importer, benchNamespace, e.plane.DerivesService)
	if err != nil {
		return err
	}
	took, err := exportAll(ctx, agentPropagator{from: e.exporter, observer: observer}, "scale", size.scale)
	if err != nil {
		return err
	}
	if err := e.awaitNoRequests(ctx, afterBurst); err != nil {
		return err
	}
	what := fmt.Sprintf("%d exports of %d endpoints at once → all", size.scale, endpointsAtScale)
	r.Add(report.Row{Name: what + " usable", Value: took.usable.Seconds(), Unit: "s"})
	r.Add(report.Row{Name: "of that: " + what + " ServiceImports and slices", Value: took.objects.Seconds(), Unit: "s"})
	addUsage(r, size.scale, 150, before, e.usage())
	for _, m := range e.members() {
		start := time.Now()
		m.member.Stop()
		if err := m.member.StartBinary(e.agent, e.agentArgs...); err != nil {
			return err
		}
		if _, err := e.untilIdle(ctx, m, start); err != nil {
			return err
		}
	}
	if err := e.awaitNoRequests(ctx, afterBurst); err != nil {
		return err
	}
	addMemory(r, fmt.Sprintf("after a restart with %d services", size.scale), 150, e.usage())
	return nil
}
