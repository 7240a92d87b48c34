package main

import (
	"context"
	"errors"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// turnSize is how many services one propagator exports before it is the turn of the other.
const turnSize = 10

// times are the durations of each step, by service.
type times struct{ export, change, unexport []time.Duration }

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
			if err := e.withAgentsPaused(func() error { return bare.measure(ctx, byChain, from, to) }); err != nil {
				return errors.Join(err, byChain.chain.err())
			}
			if err := e.awaitNoRequests(ctx, afterOneService); err != nil {
				return err
			}
			if err := agents.measure(ctx, byAgents, from, to); err != nil {
				return err
			}
		}
		return byChain.chain.clear(ctx)
	})
	if err != nil {
		return err
	}
	addTimes(r, "export → import and slice", agents.export, bare.export, 2, 3)
	addTimes(r, "endpoint change → slice", agents.change, bare.change, 2, 0)
	addTimes(r, "unexport → import deleted", agents.unexport, bare.unexport, 0, 0)
	return e.awaitNoRequests(ctx, afterBurst)
}

// measure exports, changes and unexports the services from … to-1 and records the duration of each
// step.
func (t *times) measure(ctx context.Context, p propagator, from, to int) error {
	for i := from; i < to; i++ {
		name := serviceName("one", i)
		start, err := p.export(ctx, name)
		if err := recordStep(ctx, &t.export, p, start, err, importExists(name), sliceExists(name)); err != nil {
			return err
		}
	}
	for i := from; i < to; i++ {
		address := newAddress()
		start, err := p.change(ctx, serviceName("one", i), address)
		if err := recordStep(ctx, &t.change, p, start, err, addressSeen(address)); err != nil {
			return err
		}
	}
	for i := from; i < to; i++ {
		name := serviceName("one", i)
		start, err := p.unexport(ctx, name)
		if err := recordStep(ctx, &t.unexport, p, start, err, importDeleted(name)); err != nil {
			return err
		}
	}
	return nil
}

// recordStep waits for the facts and appends the time since start.
func recordStep(ctx context.Context, into *[]time.Duration, p propagator, start time.Time, err error, facts ...string) error {
	if err != nil {
		return err
	}
	end, err := p.importObserver().await(ctx, facts...)
	*into = append(*into, end.Sub(start))
	return err
}
