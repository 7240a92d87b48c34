package main

import (
	"context"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// turnSize is how many services one propagator exports before it is the turn of the other.
const turnSize = 10

// times are the durations of each step, by service. Parts of usable are objects and ip.
type times struct{ usable, objects, ip, change, gone []time.Duration }

// oneAtATime propagates one service after the other, in turns by the agents and by the bare chain.
func oneAtATime(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	r.Say("one export, endpoint change and unexport at a time, %d times", size.samples)
	if err := e.serve(ctx, "one", size.samples, 1); err != nil {
		return err
	}
	var agents, bare times
	err := withPropagators(ctx, e, func(ctx context.Context, byAgents agentPropagator, byChain barePropagator) error {
		for from := 0; from < size.samples; from += turnSize {
			to := min(from+turnSize, size.samples)
			if err := e.withAgentsPaused(func() error { return bare.measure(ctx, e, byChain, from, to) }); err != nil {
				return err
			}
			if err := e.awaitNoRequests(ctx, afterOneService); err != nil {
				return err
			}
			if err := agents.measure(ctx, e, byAgents, from, to); err != nil {
				return err
			}
		}
		return byChain.chain.clear(ctx)
	})
	if err != nil {
		return err
	}
	addTimes(r, "export → usable", agents.usable, bare.usable, e.budgets.usable)
	addTimes(r, "of that: export → ServiceImport and slice", agents.objects, bare.usable, 0)
	addTimes(r, "of that: export → clusterset IP", agents.ip, bare.usable, 0)
	addTimes(r, "endpoint change → slice", agents.change, bare.change, budgetChange)
	addTimes(r, "unexport → gone", agents.gone, bare.gone, budgetGone)
	return e.awaitNoRequests(ctx, afterSome)
}

// measure exports, changes and unexports the services from … to-1 and records the duration of each
// step.
func (t *times) measure(ctx context.Context, e *environment, p propagator, from, to int) error {
	for i := from; i < to; i++ {
		name := serviceName("one", i)
		start, err := p.export(ctx, name)
		for into, fact := range map[*[]time.Duration]string{&t.usable: factUsable(name), &t.objects: factObjects(name), &t.ip: factIP(name)} {
			if err := recordStep(ctx, into, p, start, err, fact); err != nil {
				return err
			}
		}
	}
	for i := from; i < to; i++ {
		address := e.newAddress()
		start, err := p.change(ctx, serviceName("one", i), address)
		if err := recordStep(ctx, &t.change, p, start, err, factAddress(address)); err != nil {
			return err
		}
	}
	for i := from; i < to; i++ {
		name := serviceName("one", i)
		start, err := p.unexport(ctx, name)
		if err := recordStep(ctx, &t.gone, p, start, err, factGone(name)); err != nil {
			return err
		}
	}
	return nil
}

// recordStep waits for the fact and appends the time since start.
func recordStep(ctx context.Context, into *[]time.Duration, p propagator, start time.Time, err error, fact string) error {
	if err != nil {
		return err
	}
	end, err := p.importObserver().await(ctx, fact)
	*into = append(*into, end.Sub(start))
	return err
}
