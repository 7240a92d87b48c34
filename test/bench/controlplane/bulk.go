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
	"github.com/seamark-dev/seamark/test/harness"
)

// exportsAtOnce exports many services at once. The last and largest set stays exported for the next
// sections.
func exportsAtOnce(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	for i, n := range size.bulks {
		if err := bulk(ctx, e, n, i == len(size.bulks)-1, r); err != nil {
			return err
		}
	}
	return nil
}

// bulk measures the bare chain before the agents and after them, so that a machine that becomes
// slower or faster meanwhile affects both.
func bulk(ctx context.Context, e *environment, n int, last bool, r *report.Report) error {
	r.Say("%d exports at once", n)
	prefix := fmt.Sprintf("bulk%d", n)
	if err := e.serve(ctx, prefix, n, 1); err != nil {
		return err
	}
	return withPropagators(ctx, e, func(ctx context.Context, agents agentPropagator, bare barePropagator) error {
		first, _, err := e.measureBareBulk(ctx, bare, prefix+"-before", n)
		if err != nil {
			return err
		}
		var (
			took       time.Duration
			detail     string
			usedBefore map[string]usage
		)
		requests, err := e.requestsDuring(ctx, func() (err error) {
			cpu := cpuTimes()
			usedBefore = e.usage()
			if took, err = exportAll(ctx, agents, prefix, n); err != nil {
				return err
			}
			detail = cpuSpent(cpu, cpuTimes())
			return e.awaitNoRequests(ctx, afterBurst)
		})
		if err != nil {
			return err
		}
		usedAfter := e.usage()
		second, bareDetail, err := e.measureBareBulk(ctx, bare, prefix+"-after", n)
		if err != nil {
			return err
		}
		addTotal(r, fmt.Sprintf("%d exports at once", n), took, (first+second)/2, 3, detail+"; bare chain's "+bareDetail)
		addRequests(r, n, requests)
		if last {
			addUsage(r, n, 80, usedBefore, usedAfter)
			return nil
		}
		return e.unexportAll(ctx, agents, prefix, n)
	})
}

// measureBareBulk exports n services by the bare chain while the agents are paused, and deletes
// them.
func (e *environment) measureBareBulk(
	ctx context.Context, bare barePropagator, prefix string, n int,
) (took time.Duration, detail string, err error) {
	if err := e.awaitNoRequests(ctx, afterOneService); err != nil {
		return 0, "", err
	}
	err = e.withAgentsPaused(func() error {
		cpu := cpuTimes()
		took, err = exportAll(ctx, bare, prefix, n)
		detail = cpuSpent(cpu, cpuTimes())
		return errors.Join(err, bare.chain.err(), bare.chain.clear(ctx))
	})
	if err != nil {
		return 0, "", err
	}
	return took, detail, e.awaitNoRequests(ctx, afterOneService)
}

// exportAll exports n services in parallel and returns the time from the first request until the
// last fact was observed.
func exportAll(ctx context.Context, c propagator, prefix string, n int) (time.Duration, error) {
	facts := make([]string, 0, 2*n)
	for i := range n {
		facts = append(facts, importExists(serviceName(prefix, i)), sliceExists(serviceName(prefix, i)))
	}
	start := time.Now()
	var exporting sync.WaitGroup
	var exportErr error
	exporting.Go(func() {
		exportErr = harness.Parallel(workers, n, func(i int) error {
			_, err := c.export(ctx, serviceName(prefix, i))
			return err
		})
	})
	end, err := c.importObserver().await(ctx, facts...)
	exporting.Wait()
	return end.Sub(start), errors.Join(exportErr, err)
}

func (e *environment) unexportAll(ctx context.Context, agents agentPropagator, prefix string, n int) error {
	if err := e.exporter.client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(benchNamespace)); err != nil {
		return err
	}
	facts := make([]string, n)
	for i := range n {
		facts[i] = importDeleted(serviceName(prefix, i))
	}
	if _, err := agents.importObserver().await(ctx, facts...); err != nil {
		return err
	}
	return e.awaitNoRequests(ctx, afterBurst)
}
