package main

import (
	"context"
	"errors"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// round is how many services are carried by one side before it is the other's turn.
const round = 10

// times are what single services took, step by step.
type times struct{ export, change, unexport []time.Duration }

// oneAtATime carries one service after the other, by the agents and by the bare chain in turns.
func oneAtATime(ctx context.Context, b *bed, size sizes, r *report.Report) error {
	r.Say("one export, endpoint change and unexport at a time, %d times", size.samples)
	if err := b.serve(ctx, "one", size.samples, 1); err != nil {
		return err
	}
	var agents, bare times
	err := withCarriers(ctx, b, func(ctx context.Context, agentSide agentSide, bareSide bareSide) error {
		for from := 0; from < size.samples; from += round {
			to := min(from+round, size.samples)
			if err := b.paused(func() error { return bare.carry(ctx, bareSide, from, to) }); err != nil {
				return errors.Join(err, bareSide.chain.err())
			}
			if err := b.settle(ctx, shortly); err != nil {
				return err
			}
			if err := agents.carry(ctx, agentSide, from, to); err != nil {
				return err
			}
		}
		return bareSide.chain.clear(ctx)
	})
	if err != nil {
		return err
	}
	addTimes(r, "export → import and slice", agents.export, bare.export, 2, 3)
	addTimes(r, "endpoint change → slice", agents.change, bare.change, 2, 0)
	addTimes(r, "unexport → import gone", agents.unexport, bare.unexport, 0, 0)
	return b.settle(ctx, thoroughly)
}

// carry takes services from … to-1 through their lives and notes how long each step took.
func (t *times) carry(ctx context.Context, c carrier, from, to int) error {
	for i := from; i < to; i++ {
		name := nameOf("one", i)
		start, err := c.export(ctx, name)
		if err := note(ctx, &t.export, c, start, err, importOf(name), sliceOf(name)); err != nil {
			return err
		}
	}
	for i := from; i < to; i++ {
		address := newAddress()
		start, err := c.change(ctx, nameOf("one", i), address)
		if err := note(ctx, &t.change, c, start, err, addressSeen(address)); err != nil {
			return err
		}
	}
	for i := from; i < to; i++ {
		name := nameOf("one", i)
		start, err := c.unexport(ctx, name)
		if err := note(ctx, &t.unexport, c, start, err, importGone(name)); err != nil {
			return err
		}
	}
	return nil
}

func note(ctx context.Context, into *[]time.Duration, c carrier, start time.Time, err error, facts ...string) error {
	if err != nil {
		return err
	}
	end, err := c.sees().await(ctx, facts...)
	*into = append(*into, end.Sub(start))
	return err
}
