package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/bench/usage"
)

// idleAgents counts the writes and the CPU time of agents when nothing changes.
func idleAgents(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	if err := e.ensureExported(ctx, size); err != nil {
		return err
	}
	r.Say("idle agents, for %s", size.idle)
	var usedBefore map[string]usage.Usage
	requests, err := e.requestsDuring(ctx, func() error {
		usedBefore = e.usage()
		return sleep(ctx, size.idle)
	})
	if err != nil {
		return err
	}
	addExpectedZero(r, fmt.Sprintf("writes of idle agents in %s", size.idle), onlyWrites(requests))
	for _, m := range e.members() {
		cpu := usage.Of(m.member.PID()).CPU - usedBefore[m.name].CPU
		r.Add(report.Row{
			Name: fmt.Sprintf("CPU of the %s's idle agent", m.name), Value: cpu.Seconds() / size.idle.Seconds() * 100, Unit: "% of a core",
		})
	}
	return nil
}

// restarts restarts each agent while all services are exported.
func restarts(ctx context.Context, e *environment, size sizes, r *report.Report) error {
	if err := e.ensureExported(ctx, size); err != nil {
		return err
	}
	n := size.largest()
	for _, m := range e.members() {
		r.Say("restart of the %s's agent with %d services", m.name, n)
		var took time.Duration
		requests, err := e.requestsDuring(ctx, func() (err error) {
			m.member.Stop()
			start := time.Now()
			if err := m.member.StartBinary(e.agent, e.agentArgs...); err != nil {
				return err
			}
			if took, err = e.untilIdle(ctx, m, start); err != nil {
				return err
			}
			return e.awaitNoRequests(ctx, afterSome)
		})
		if err != nil {
			return err
		}
		what := fmt.Sprintf("restart of the %s's agent with %d services", m.name, n)
		r.Add(report.Row{Name: what + ", time until idle", Value: took.Seconds(), Unit: "s"})
		addExpectedZero(r, what+", writes", onlyWrites(requests))
	}
	return nil
}

// untilIdle returns the time from start until an agent has renewed its lease and no longer uses CPU
// time.
func (e *environment) untilIdle(ctx context.Context, m *server, start time.Time) (time.Duration, error) {
	const idlePeriod, poll, noise = time.Second, 50 * time.Millisecond, 20 * time.Millisecond
	key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: m.member.ID}
	for {
		lease := &coordinationv1.Lease{}
		if err := e.broker.client.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
			return 0, err
		}
		if lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(start) {
			break
		}
		if err := sleep(ctx, poll); err != nil {
			return 0, fmt.Errorf("the agent of the %s does not renew its lease: %w", m.name, err)
		}
	}
	busy, busyAt := usage.Of(m.member.PID()).CPU, time.Now()
	for {
		if err := sleep(ctx, poll); err != nil {
			return 0, err
		}
		switch used := usage.Of(m.member.PID()).CPU; {
		case used-busy > noise:
			busy, busyAt = used, time.Now()
		case time.Since(busyAt) > idlePeriod:
			return busyAt.Sub(start), nil
		}
	}
}

// sleep waits for a duration or until ctx ends, whose cause it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// onlyWrites returns the counts without reads: an agent lists all objects when it starts.
func onlyWrites(c counts) counts {
	out := counts{}
	for server, kinds := range c {
		out[server] = map[request]int64{}
		for kind, n := range kinds {
			if kind.isWrite() {
				out[server][kind] = n
			}
		}
	}
	return out
}
