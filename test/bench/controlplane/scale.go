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
	if err := e.awaitNoRequests(ctx, after(maxDeferral)); err != nil {
		return err
	}
	few, err := e.exportFewer(ctx, size.largest())
	if err != nil {
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
	took, err := e.exportAndSettle(ctx, "scale", size.scale)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d exports of %d endpoints at once → all", size.scale, endpointsAtScale)
	each, eachOfFew := took.usable.Seconds()/float64(size.scale), few.usable.Seconds()/float64(size.largest())
	r.Add(report.Row{
		Name: what + " usable", Value: took.usable.Seconds(), Unit: "s",
		Detail: fmt.Sprintf("each service: %.2f × that with %d at once, which took %.1f s", each/eachOfFew, size.largest(), few.usable.Seconds()),
	})
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
	if err := e.awaitNoRequests(ctx, afterSome); err != nil {
		return err
	}
	addMemory(r, fmt.Sprintf("after a restart with %d services", size.scale), 150, e.usage())
	return nil
}

// exportFewer measures exports of fewer services of the same size, so that it shows how the time
// grows with their number.
func (e *environment) exportFewer(ctx context.Context, n int) (bulkTimes, error) {
	if err := e.serve(ctx, "fewer", n, endpointsAtScale); err != nil {
		return bulkTimes{}, err
	}
	took, err := e.exportAndSettle(ctx, "fewer", n)
	if err != nil {
		return took, err
	}
	if err := e.exporter.client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(benchNamespace)); err != nil {
		return took, err
	}
	return took, e.awaitNoRequests(ctx, after(maxDeferral))
}

// exportAndSettle exports services and waits until the agents have made their deferred writes.
func (e *environment) exportAndSettle(ctx context.Context, prefix string, n int) (bulkTimes, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	observer, err := observe(ctx, e.importer, benchNamespace, e.plane.DerivesService)
	if err != nil {
		return bulkTimes{}, err
	}
	took, err := exportAll(ctx, agentPropagator{from: e.exporter, observer: observer}, prefix, n)
	if err != nil {
		return took, err
	}
	return took, e.awaitNoRequests(ctx, after(took.usable))
}
