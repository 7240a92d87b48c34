package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/simulated"
)

// recover waits after a fault until a new change has arrived in all clusters, and reports how long
// that took and how many requests the members sent. It counts them for a while after it, too: a
// second wave may come then. begin is when the fault began, back when the broker was back.
func (e *environment) recover(ctx context.Context, r results, what string, size sizes, begin, back time.Time) error {
	profiled := make(chan error, 1)
	go func() { profiled <- e.profile(ctx, strings.ReplaceAll(what, " ", "-"), size.profile) }()
	if err := e.changeEach(ctx); err != nil {
		return err
	}
	if _, err := e.awaitSettled(ctx); err != nil {
		return err
	}
	end := time.Now()
	r.Add(what+" → everything is back", end.Sub(back).Seconds(), "s",
		fmt.Sprintf("after the broker was ready again, which took %.1f s", back.Sub(begin).Seconds()))
	if err := errors.Join(sleep(ctx, size.after), <-profiled); err != nil {
		return err
	}
	seconds := e.broker.Traffic.Between(back, time.Now())
	sum, peak := simulated.Total(seconds), 0
	for _, s := range seconds {
		peak = max(peak, s.Requests)
	}
	wave := "no second wave"
	const before = 20 * time.Second
	idle := float64(simulated.Total(e.broker.Traffic.Between(begin.Add(-before), begin)).Requests) / before.Seconds()
	if hasSecondWave(seconds, idle) {
		wave = "with a second wave"
	}
	members := float64(len(e.members))
	failed := fmt.Sprintf("of that failed %.1f", float64(sum.Failed)/members)
	for _, why := range mostFrequent(sum.Failures, 5) {
		failed += fmt.Sprintf("; %d × %s", sum.Failures[why], why)
	}
	r.Add(what+": requests per member", float64(sum.Requests)/members, "", failed)
	r.Add(what+": requests in the busiest second, per member", float64(peak)/members, "/s", wave)
	var rates []float64
	for _, s := range e.broker.Traffic.Between(begin, time.Now()) {
		rates = append(rates, float64(s.Requests))
	}
	r.Series(what+": requests per second", rates)
	return nil
}

// mostFrequent returns the keys with the highest counts, at most so many.
func mostFrequent(counts map[string]int, most int) []string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	return keys[:min(most, len(keys))]
}

func restart(ctx context.Context, e *environment, size sizes, r results) error {
	begin := time.Now()
	if err := e.planes[0].Restart(ctx); err != nil {
		return err
	}
	return e.recover(ctx, r, "restart", size, begin, time.Now())
}

// setBack restores the broker from a backup that lacks the latest changes of a tenth of the
// services.
func setBack(ctx context.Context, e *environment, size sizes, r results) error {
	restore, err := e.planes[0].Snapshot(ctx)
	if err != nil {
		return err
	}
	if _, err := e.awaitSettled(ctx); err != nil {
		return err
	}
	for _, t := range e.teams {
		names := slices.Sorted(maps.Keys(t.services))
		for _, name := range names[:(len(names)+9)/10] {
			if err := e.change(ctx, t, name, t.members[0]); err != nil {
				return err
			}
		}
	}
	if _, err := e.awaitSettled(ctx); err != nil {
		return err
	}
	begin := time.Now()
	if err := restore(ctx); err != nil {
		return err
	}
	return e.recover(ctx, r, "set back", size, begin, time.Now())
}

// loss stops the agents of a tenth of the members at once: in each second team, the second
// exporter.
func loss(ctx context.Context, e *environment, _ sizes, r results) error {
	var lost []*simulated.Member
	for i := 0; i < len(e.teams); i += 2 {
		if all := e.teams[i].members; len(all) > 1 {
			lost = append(lost, all[1])
		}
	}
	start := time.Now()
	if err := harness.Parallel(workers, len(lost), func(i int) error { lost[i].Lose(); return nil }); err != nil {
		return err
	}
	if _, err := e.awaitSettled(ctx); err != nil {
		return err
	}
	r.Add("loss of a tenth → their endpoints are gone", time.Since(start).Seconds(), "s",
		fmt.Sprintf("%d members; leases expire after %s", len(lost), e.leaseDuration))
	start = time.Now()
	for _, m := range lost {
		m.Start()
	}
	if _, err := e.awaitSettled(ctx); err != nil {
		return err
	}
	r.Add("return of a tenth → everything is back", time.Since(start).Seconds(), "s", "")
	return nil
}
