package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// atOnce exports many services at once. The last and largest number stays exported for what is measured next.
func atOnce(ctx context.Context, b *bed, size sizes, r *report.Report) error {
	for i, n := range size.bulks {
		if err := bulk(ctx, b, n, i == len(size.bulks)-1, r); err != nil {
			return err
		}
	}
	return nil
}

// bulk measures the bare chain before the agents and after them, so that a machine that gets slower or faster meanwhile hits
// both.
func bulk(ctx context.Context, b *bed, n int, last bool, r *report.Report) error {
	r.Say("%d exports at once", n)
	prefix := fmt.Sprintf("bulk%d", n)
	if err := b.serve(ctx, prefix, n, 1); err != nil {
		return err
	}
	return withCarriers(ctx, b, func(ctx context.Context, agents agentSide, bare bareSide) error {
		first, _, err := b.bareBulk(ctx, bare, prefix+"-before", n)
		if err != nil {
			return err
		}
		before, err := b.requests(ctx)
		if err != nil {
			return err
		}
		usedBefore, cpu := b.usage(), children()
		took, err := all(ctx, agents, prefix, n)
		if err != nil {
			return err
		}
		detail := spent(cpu, children())
		if err := b.settle(ctx, thoroughly); err != nil {
			return err
		}
		after, err := b.requests(ctx)
		if err != nil {
			return err
		}
		usedAfter := b.usage()
		second, bareDetail, err := b.bareBulk(ctx, bare, prefix+"-after", n)
		if err != nil {
			return err
		}
		addTotal(r, fmt.Sprintf("%d exports at once", n), took, (first+second)/2, 3, detail+"; bare chain's "+bareDetail)
		addRequests(r, n, after.since(before))
		if last {
			addUsage(r, n, 80, usedBefore, usedAfter)
			return nil
		}
		return b.unexportAll(ctx, agents, prefix, n)
	})
}

// bareBulk carries n services by the bare chain, without the agents, and leaves nothing behind.
func (b *bed) bareBulk(ctx context.Context, bare bareSide, prefix string, n int) (took time.Duration, detail string, err error) {
	if err := b.settle(ctx, shortly); err != nil {
		return 0, "", err
	}
	err = b.paused(func() error {
		cpu := children()
		took, err = all(ctx, bare, prefix, n)
		detail = spent(cpu, children())
		return errors.Join(err, bare.chain.err(), bare.chain.clear(ctx))
	})
	if err != nil {
		return 0, "", err
	}
	return took, detail, b.settle(ctx, shortly)
}

// all exports n services side by side and returns the time from the first create to the last sight.
func all(ctx context.Context, c carrier, prefix string, n int) (time.Duration, error) {
	facts := make([]string, 0, 2*n)
	for i := range n {
		facts = append(facts, importOf(nameOf(prefix, i)), sliceOf(nameOf(prefix, i)))
	}
	start := time.Now()
	var exporting sync.WaitGroup
	var exportErr error
	exporting.Go(func() {
		exportErr = side(n, func(i int) error {
			_, err := c.export(ctx, nameOf(prefix, i))
			return err
		})
	})
	end, err := c.sees().await(ctx, facts...)
	exporting.Wait()
	return end.Sub(start), errors.Join(exportErr, err)
}

func (b *bed) unexportAll(ctx context.Context, agents agentSide, prefix string, n int) error {
	if err := b.a.client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(benchNamespace)); err != nil {
		return err
	}
	facts := make([]string, n)
	for i := range n {
		facts[i] = importGone(nameOf(prefix, i))
	}
	if _, err := agents.sees().await(ctx, facts...); err != nil {
		return err
	}
	return b.settle(ctx, thoroughly)
}
