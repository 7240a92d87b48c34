package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/bench/usage"
	"github.com/seamark-dev/seamark/test/harness"
)

// bulkTimes are how long it took until all services of a bulk were usable, and gone again. Parts of
// usable are objects and ips.
type bulkTimes struct{ usable, objects, ips, gone time.Duration }

// exportsAtOnce exports many services at once. The last and largest set stays exported for the next
// sections.
func exportsAtOnce(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	for _, n := range size.bulks {
		if err := bulk(ctx, e, n, n == size.largest(), r); err != nil {
			return err
		}
	}
	return nil
}

func bulkPrefix(n int) string { return fmt.Sprintf("bulk%d", n) }

// bulk measures the bare chain before the agents and after them, so that a machine that becomes
// slower or faster meanwhile affects both.
func bulk(ctx context.Context, e *environment, n int, last bool, r *report.Report) error {
	r.Say("%d exports at once", n)
	prefix := bulkPrefix(n)
	if err := e.serve(ctx, prefix, n, 1); err != nil {
		return err
	}
	return withPropagators(ctx, e, func(ctx context.Context, agents agentPropagator, bare barePropagator) error {
		first, _, err := e.measureBareBulk(ctx, bare, prefix+"-before", n)
		if err != nil {
			return err
		}
		var (
			took       bulkTimes
			detail     string
			usedBefore map[string]usage.Usage
		)
		requests, err := e.requestsDuring(ctx, func() (err error) {
			cpu := cpuTimes()
			usedBefore = e.usage()
			if took, err = exportAll(ctx, agents, prefix, n); err != nil {
				return err
			}
			detail = cpuSpent(cpu, cpuTimes())
			return e.awaitNoRequests(ctx, after(took.usable))
		})
		if err != nil {
			return err
		}
		usedAfter := e.usage()
		second, bareDetail, err := e.measureBareBulk(ctx, bare, prefix+"-after", n)
		if err != nil {
			return err
		}
		usable := (first.usable + second.usable) / 2
		addTotal(r, fmt.Sprintf("%d exports at once → all usable", n), took.usable, usable, e.budgets.atOnce, detail+"; bare chain's "+bareDetail)
		addTotal(r, fmt.Sprintf("of that: %d exports → all ServiceImports and slices", n), took.objects, usable, 0, "")
		addTotal(r, fmt.Sprintf("of that: %d exports → all clusterset IPs", n), took.ips, usable, 0, "")
		addRequests(r, "export", n, e.budgets.requests, requests)
		if last {
			e.exported = n
			addUsage(r, n, 80, usedBefore, usedAfter)
			return nil
		}
		gone, err := unexportAll(ctx, agents, prefix, n)
		return errors.Join(err, e.awaitNoRequests(ctx, after(gone)))
	})
}

// unexportsAtOnce unexports the largest bulk.
func unexportsAtOnce(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	n := size.largest()
	prefix := bulkPrefix(n)
	if err := e.ensureExported(ctx, size); err != nil {
		return err
	}
	r.Say("%d unexports at once", n)
	return withPropagators(ctx, e, func(ctx context.Context, agents agentPropagator, bare barePropagator) error {
		first, _, err := e.measureBareBulk(ctx, bare, prefix+"-before", n)
		if err != nil {
			return err
		}
		var took time.Duration
		var detail string
		requests, err := e.requestsDuring(ctx, func() (err error) {
			cpu := cpuTimes()
			if took, err = unexportAll(ctx, agents, prefix, n); err != nil {
				return err
			}
			e.exported = 0
			detail = cpuSpent(cpu, cpuTimes())
			return e.awaitNoRequests(ctx, after(took))
		})
		if err != nil {
			return err
		}
		second, _, err := e.measureBareBulk(ctx, bare, prefix+"-after", n)
		if err != nil {
			return err
		}
		addTotal(r, fmt.Sprintf("%d unexports at once → all gone", n), took, (first.gone+second.gone)/2, budgetAllGone, detail)
		addRequests(r, "unexport", n, 0, requests)
		return nil
	})
}

// ensureExported exports the largest bulk if exportsAtOnce did not run.
func (e *environment) ensureExported(ctx context.Context, size sizes) error {
	n := size.largest()
	if e.exported == n {
		return nil
	}
	if err := e.serve(ctx, bulkPrefix(n), n, 1); err != nil {
		return err
	}
	return withPropagators(ctx, e, func(ctx context.Context, agents agentPropagator, _ barePropagator) error {
		took, err := exportAll(ctx, agents, bulkPrefix(n), n)
		if err != nil {
			return err
		}
		e.exported = n
		return e.awaitNoRequests(ctx, after(took.usable))
	})
}

// measureBareBulk exports and unexports n services by the bare chain while the agents are paused.
func (e *environment) measureBareBulk(
	ctx context.Context, bare barePropagator, prefix string, n int,
) (took bulkTimes, detail string, err error) {
	if err := e.awaitNoRequests(ctx, afterOneService); err != nil {
		return took, "", err
	}
	err = e.withAgentsPaused(func() error {
		cpu := cpuTimes()
		if took, err = exportAll(ctx, bare, prefix, n); err != nil {
			return err
		}
		detail = cpuSpent(cpu, cpuTimes())
		took.gone, err = unexportAll(ctx, bare, prefix, n)
		return errors.Join(err, bare.chain.clear(ctx))
	})
	if err != nil {
		return took, "", err
	}
	return took, detail, e.awaitNoRequests(ctx, afterOneService)
}

// exportAll exports n services in parallel and returns the times from the first request until the
// last service was usable, and until the last one had each part of that.
func exportAll(ctx context.Context, p propagator, prefix string, n int) (took bulkTimes, err error) {
	start := time.Now()
	if took.usable, err = allAtOnce(ctx, p, prefix, n, p.export, factUsable); err != nil {
		return took, err
	}
	for into, fact := range map[*time.Duration]func(string) string{&took.objects: factObjects, &took.ips: factIP} {
		end, err := p.importObserver().await(ctx, factsOf(prefix, n, fact)...)
		if err != nil {
			return took, err
		}
		*into = end.Sub(start)
	}
	return took, nil
}

// unexportAll unexports n usable services in parallel and returns the time from the first request
// until all are gone.
func unexportAll(ctx context.Context, p propagator, prefix string, n int) (time.Duration, error) {
	// An observer that was started after the export has to see the services before they go.
	if _, err := p.importObserver().await(ctx, factsOf(prefix, n, factUsable)...); err != nil {
		return 0, err
	}
	return allAtOnce(ctx, p, prefix, n, p.unexport, factGone)
}

// allAtOnce does one step for n services in parallel and returns the time from the first request
// until the last service had the fact.
func allAtOnce(
	ctx context.Context, p propagator, prefix string, n int, step func(context.Context, string) (time.Time, error), fact func(string) string,
) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	var requesting sync.WaitGroup
	requesting.Go(func() {
		err := harness.Parallel(workers, n, func(i int) error {
			_, err := step(ctx, serviceName(prefix, i))
			return err
		})
		if err != nil {
			cancel(err)
		}
	})
	end, err := p.importObserver().await(ctx, factsOf(prefix, n, fact)...)
	requesting.Wait()
	return end.Sub(start), err
}

func factsOf(prefix string, n int, fact func(string) string) []string {
	facts := make([]string, n)
	for i := range facts {
		facts[i] = fact(serviceName(prefix, i))
	}
	return facts
}
