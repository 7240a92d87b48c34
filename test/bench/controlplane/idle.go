package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/fleet"
)

// A service of 1,000 endpoints, cut as the endpointslice controller cuts it.
const (
	bigSlices   = 10
	bigPerSlice = 100
)

// podChange moves single endpoints of a large service and counts what that costs.
func podChange(ctx context.Context, b *bed, size sizes, r *report.Report) error {
	r.Say("pod changes in a service of %d endpoints", bigSlices*bigPerSlice)
	svc := fleet.NewService(benchNamespace, "big")
	if err := b.a.client.Create(ctx, svc); err != nil {
		return err
	}
	for i := range bigSlices {
		ips := make([]string, bigPerSlice)
		for j := range ips {
			ips[j] = newAddress()
		}
		if err := b.a.client.Create(ctx, fleet.NewSlice(svc, nameOf("part", i), ips...)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sight, err := look(ctx, b.b, benchNamespace)
	if err != nil {
		return err
	}
	if err := b.a.client.Create(ctx, newExport(svc.Name)); err != nil {
		return err
	}
	if _, err := sight.await(ctx, importOf(svc.Name), sliceOf(svc.Name)); err != nil {
		return err
	}
	if err := b.settle(ctx, thoroughly); err != nil {
		return err
	}
	before, err := b.requests(ctx)
	if err != nil {
		return err
	}
	for i := range size.podMoves {
		slice := &discoveryv1.EndpointSlice{}
		key := types.NamespacedName{Namespace: benchNamespace, Name: svc.Name + "-" + nameOf("part", i%bigSlices)}
		if err := b.a.client.Get(ctx, key, slice); err != nil {
			return err
		}
		address := newAddress()
		slice.Endpoints[i].Addresses = []string{address}
		if err := b.a.client.Update(ctx, slice); err != nil {
			return err
		}
		if _, err := sight.await(ctx, addressSeen(address)); err != nil {
			return err
		}
	}
	if err := b.settle(ctx, thoroughly); err != nil {
		return err
	}
	after, err := b.requests(ctx)
	if err != nil {
		return err
	}
	addPodChange(r, size.podMoves, after.since(before))
	return nil
}

// quietAgents counts what the agents do when nothing happens.
func quietAgents(ctx context.Context, b *bed, size sizes, r *report.Report) error {
	r.Say("nothing, for %s", size.quiet)
	before, err := b.requests(ctx)
	if err != nil {
		return err
	}
	usedBefore := b.usage()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(size.quiet):
	}
	after, err := b.requests(ctx)
	if err != nil {
		return err
	}
	addNone(r, fmt.Sprintf("writes of quiet agents in %s", size.quiet), onlyWrites(after.since(before)))
	for _, m := range b.members() {
		cpu := usageOf(m.member.PID()).cpu - usedBefore[m.name].cpu
		r.Add(report.Row{Name: "CPU of the quiet agent of the " + m.name, Value: cpu.Seconds() / size.quiet.Seconds() * 100, Unit: "% of a core"})
	}
	return nil
}

// restarts ends each agent and starts it again with all services in place.
func restarts(ctx context.Context, b *bed, size sizes, r *report.Report) error {
	n := size.bulks[len(size.bulks)-1]
	for _, m := range b.members() {
		r.Say("restart of the agent of the %s with %d services", m.name, n)
		before, err := b.requests(ctx)
		if err != nil {
			return err
		}
		m.member.Stop()
		start := time.Now()
		if err := m.member.StartBinary(b.agent, b.agentArgs...); err != nil {
			return err
		}
		took, err := b.untilQuiet(ctx, m, start)
		if err != nil {
			return err
		}
		if err := b.settle(ctx, thoroughly); err != nil {
			return err
		}
		after, err := b.requests(ctx)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("restart of the %s's agent with %d services", m.name, n)
		r.Add(report.Row{Name: what + ", time to quiet", Value: took.Seconds(), Unit: "s"})
		addNone(r, what+", writes", onlyWrites(after.since(before)))
	}
	return nil
}

// untilQuiet is the time from start until an agent has renewed its lease and has nothing more to compute.
func (b *bed) untilQuiet(ctx context.Context, m *server, start time.Time) (time.Duration, error) {
	const calm, poll, idle = time.Second, 50 * time.Millisecond, 20 * time.Millisecond
	key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: m.member.ID}
	for {
		lease := &coordinationv1.Lease{}
		if err := b.broker.client.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
			return 0, err
		}
		if lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(start) {
			break
		}
		if err := pause(ctx, poll); err != nil {
			return 0, fmt.Errorf("the agent of %s does not come back: %w", m.name, err)
		}
	}
	busy, busyAt := usageOf(m.member.PID()).cpu, time.Now()
	for {
		if err := pause(ctx, poll); err != nil {
			return 0, err
		}
		switch used := usageOf(m.member.PID()).cpu; {
		case used-busy > idle:
			busy, busyAt = used, time.Now()
		case time.Since(busyAt) > calm:
			return busyAt.Sub(start), nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// onlyWrites leaves reads out: an agent that starts lists what there is.
func onlyWrites(c counts) counts {
	out := counts{}
	for server, kinds := range c {
		out[server] = map[request]int64{}
		for kind, n := range kinds {
			if kind.writes() {
				out[server][kind] = n
			}
		}
	}
	return out
}
