package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/internal/cli/bench"
	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/bench/usage"
)

// sizes say how much one scenario measures.
type sizes struct {
	idle, churn time.Duration
	profile     time.Duration // of the CPU, if profiles are wanted
	after       time.Duration // how long requests are counted after a recovery
	changes     int           // endpoint changes per second while there is churn
	rounds      int           // services that propagate from one real member to the other
	endpoints   int           // of the service that is rolled out
	elsewhere   []int         // numbers of services of which the real members import few
	quiet       bool          // wait until other machines leave this one its cores
}

var (
	full = sizes{
		idle: 30 * time.Second, churn: 30 * time.Second, after: 30 * time.Second, changes: 10, rounds: 100, endpoints: 1000,
		elsewhere: []int{10_000, 100_000}, profile: 15 * time.Second, quiet: true,
	}
	quick = sizes{
		idle: 5 * time.Second, churn: 5 * time.Second, after: 10 * time.Second, changes: 5, rounds: 5, endpoints: 1000,
		elsewhere: []int{2000}, profile: 5 * time.Second, quiet: true,
	}
	// tiny is for tests.
	tiny = sizes{
		idle: time.Second, churn: 2 * time.Second, after: time.Second, changes: 5, rounds: 2, endpoints: 300, elsewhere: []int{200},
		profile: time.Second,
	}
)

// results collects the rows of one number of members.
type results interface {
	// Add adds a value. Its name is the same for all numbers of members.
	Add(name string, value float64, unit, detail string)
	// AddWith adds a value with so many services in the clusterset.
	AddWith(services int, name string, value float64, unit, detail string)
	// Series adds a value per second, for a plot.
	Series(name string, values []float64)
	Say(format string, args ...any)
}

type scenario struct {
	name, about string
	run         func(context.Context, *environment, sizes, results) error
	onlyNamed   bool // takes too long to run with all others
}

// scenarios run in this order on one clusterset. Each ends when all clusters have imported exactly
// what they should.
var scenarios = []scenario{
	{"idle", "nothing changes", idle, false},
	{"churn", "endpoints change all the time, while services propagate between the real members", churn, false},
	{"rollout", "all endpoints of one service are replaced", rollout, false},
	{"join", "a tenth more members join at once", massJoin, false},
	{"restart", "the broker restarts", restart, false},
	{"setback", "the broker is restored from a backup", setBack, false},
	{"loss", "a tenth of the members is lost at once, and comes back", loss, false},
	{"elsewhere", "most services are in namespaces that other clusters have; only if it is named", elsewhere, true},
}

func selectScenarios(list string) ([]scenario, error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.onlyNamed }), nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("-scenario: there is no scenario %q", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return !slices.Contains(names, s.name) }), nil
}

const mib = 1 << 20

func idle(ctx context.Context, e *environment, size sizes, r results) error {
	if err := sleep(ctx, size.after); err != nil { // agents defer their less urgent writes
		return err
	}
	c, err := e.during(ctx, func() error { return sleep(ctx, size.idle) })
	if err != nil {
		return err
	}
	if err := e.profile(ctx, "idle", size.profile); err != nil { // not while it is measured
		return err
	}
	members := float64(len(e.members))
	perMember := func(total float64) float64 { return total / c.seconds() / members }
	r.Add("broker's CPU per member", perMember(float64(c.brokerCPU().Microseconds())), "µs/s",
		fmt.Sprintf("in all %.2f cores, of that etcd %.2f", c.brokerCPU().Seconds()/c.seconds(), c.etcd.CPU.Seconds()/c.seconds()))
	r.Add("requests per member", perMember(float64(c.sent.Requests)), "/s", "")
	r.Add("watch events per member", perMember(c.events), "/s", "")
	r.Add("content of watches per member", perMember(c.bytes), "B/s", "")
	r.Add("memory of the broker's API server", float64(c.apiServer.Resident)/mib, "MiB", fmt.Sprintf("etcd %d MiB", c.etcd.Resident/mib))
	r.Add("memory of a real agent", float64(usage.Of(e.importer().PID()).Anonymous)/mib, "MiB",
		fmt.Sprintf("without the program itself; it imports %d services", len(e.teams[0].services)))
	r.Add("cores that the simulation uses", c.simulation.CPU.Seconds()/c.seconds(), "", "")
	return nil
}

// churn measures between the real members with the same number of changes per second for any number
// of members.
func churn(ctx context.Context, e *environment, size sizes, r results) error {
	changing, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	changed := 0
	var measured bench.Result
	var theft float64
	c, err := e.during(ctx, func() (err error) {
		go func() { done <- e.churn(changing, size.changes, &changed) }()
		from := time.Now()
		others := report.NewTheft()
		measured, err = e.propagate(ctx, size.rounds)
		theft = others.Share()
		err = errors.Join(err, sleep(ctx, size.churn-time.Since(from)))
		stop()
		return errors.Join(err, <-done)
	})
	if err != nil {
		return err
	}
	addPropagation(measured, r.Add)
	r.Say("meanwhile other machines took %.1f %% of the CPU time", 100*theft)
	r.Add("broker's CPU at the same churn", c.brokerCPU().Seconds()/c.seconds(), "cores",
		fmt.Sprintf("%.1f changes a second", float64(changed)/c.seconds()))
	r.Add("requests per member at the same churn", float64(c.sent.Requests)/c.seconds()/float64(len(e.members)), "/s",
		"less than idle would mean that the simulation had too little of the cores")
	r.Add("watch events per change", c.events/float64(max(changed, 1)), "", "")
	r.Add("cores that the simulation uses at the same churn", c.simulation.CPU.Seconds()/c.seconds(), "", "")
	r.Add("cores that the real members use at the same churn", c.realMembers.CPU.Seconds()/c.seconds(), "", "agents, API servers and etcd")
	if e.profiles != "" {
		if err := e.profileChurn(ctx, size); err != nil {
			return err
		}
	}
	_, err = e.awaitSettled(ctx)
	return err
}

// profileChurn profiles the same again.
func (e *environment) profileChurn(ctx context.Context, size sizes) error {
	changing, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	changed := 0
	go func() { done <- e.churn(changing, size.changes, &changed) }()
	propagated := make(chan error, 1)
	go func() {
		_, err := e.propagate(ctx, size.rounds)
		propagated <- err
	}()
	err := errors.Join(e.profile(ctx, "churn", size.profile), <-propagated)
	stop()
	return errors.Join(err, <-done)
}

// churn changes endpoints of random services until ctx ends.
func (e *environment) churn(ctx context.Context, perSecond int, changed *int) error {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		t := e.teams[rand.IntN(len(e.teams))]
		names := slices.Sorted(maps.Keys(t.services))
		if len(names) == 0 {
			continue
		}
		exporters := t.exporters()
		// Not with ctx: a change that was begun is made, so that the model is true.
		if err := e.change(context.WithoutCancel(ctx), t, names[rand.IntN(len(names))], exporters[rand.IntN(len(exporters))]); err != nil {
			return err
		}
		*changed++
	}
}

func rollout(ctx context.Context, e *environment, size sizes, r results) error {
	const name = "rollout"
	t := e.teams[0]
	if err := e.export(ctx, t, name, size.endpoints); err != nil {
		return err
	}
	if _, err := e.awaitSettled(ctx); err != nil {
		return err
	}
	var took time.Duration
	c, err := e.during(ctx, func() (err error) {
		if err := e.change(ctx, t, name, t.members[0]); err != nil {
			return err
		}
		took, err = e.awaitSettled(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r.Add(fmt.Sprintf("rollout of %d endpoints → everywhere", size.endpoints), took.Seconds(), "s", "")
	r.Add("content of watches for the rollout", c.bytes/mib, "MiB", fmt.Sprintf("%.0f events; idle ones included", c.events))
	return nil
}

func massJoin(ctx context.Context, e *environment, _ sizes, r results) error {
	n := max(len(e.members)/10, 2)
	start := time.Now()
	added, err := e.invite(ctx, n)
	if err != nil {
		return err
	}
	r.Add("invitation of a member", report.Milliseconds(time.Since(start))/float64(n), "ms", fmt.Sprintf("%d, one after the other", n))
	c, err := e.during(ctx, func() error {
		start = time.Now()
		for _, m := range added {
			m.Start()
		}
		return e.awaitConnected(ctx)
	})
	if err != nil {
		return err
	}
	r.Add("mass join → all connected", time.Since(start).Seconds(), "s", fmt.Sprintf("%d members at once", n))
	r.Add("broker's CPU per joining member", report.Milliseconds(c.brokerCPU())/float64(n), "ms", "")
	if err := e.export(ctx, e.teams[len(e.teams)-1], "joined", 1); err != nil {
		return err
	}
	_, err = e.awaitSettled(ctx)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
