package main

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// endpointsAtScale is how many endpoints each service has when memory is measured with very many of them.
const endpointsAtScale = 10

// manyServices measures what the agents hold when there is as much as the design has a budget for. What was exported before goes, and the agents are
// new, so that nothing of theirs is left over.
func manyServices(ctx context.Context, b *bed, size sizes, r *report.Report) error {
	if size.scale == 0 {
		return nil
	}
	r.Say("%d services of %d endpoints", size.scale, endpointsAtScale)
	if err := b.a.client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(benchNamespace)); err != nil {
		return err
	}
	if err := b.settle(ctx, thoroughly); err != nil {
		return err
	}
	for _, m := range b.members() {
		m.member.Stop()
		if err := m.member.StartBinary(b.agent, b.agentArgs...); err != nil {
			return err
		}
	}
	if err := b.serve(ctx, "scale", size.scale, endpointsAtScale); err != nil {
		return err
	}
	before := b.usage()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sight, err := look(ctx, b.b, benchNamespace)
	if err != nil {
		return err
	}
	took, err := all(ctx, agentSide{from: b.a, sight: sight}, "scale", size.scale)
	if err != nil {
		return err
	}
	if err := b.settle(ctx, thoroughly); err != nil {
		return err
	}
	r.Add(report.Row{Name: fmt.Sprintf("%d exports of %d endpoints at once", size.scale, endpointsAtScale), Value: float64(took) / float64(time.Second), Unit: "s"})
	addUsage(r, size.scale, 150, before, b.usage())
	for _, m := range b.members() {
		start := time.Now()
		m.member.Stop()
		if err := m.member.StartBinary(b.agent, b.agentArgs...); err != nil {
			return err
		}
		if _, err := b.untilQuiet(ctx, m, start); err != nil {
			return err
		}
	}
	if err := b.settle(ctx, thoroughly); err != nil {
		return err
	}
	addMemory(r, fmt.Sprintf("after a restart with %d services", size.scale), 150, b.usage())
	return nil
}
