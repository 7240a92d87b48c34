// Command scale measures Seamark with many members on one broker, on one machine. The broker and
// two members, east and west, are real: API servers, etcd, and agents as processes of their own.
// All other members are simulated, but for their connection to the broker: see package simulated.
// They form teams of five clusters that share a namespace, of which two export its services.
//
//	go run ./test/scale                                   # 10, 50 and 100 members, all scenarios
//	go run ./test/scale -quick                            # 10 and 25 members, shorter
//	go run ./test/scale -members 10,100,500 -services 1000 -scenario idle,churn -time 30m
//	go run ./test/scale -plots docs/plots                 # also writes plots (SVG) to a folder
//	go run ./test/scale -scenario idle -profiles /tmp     # also writes CPU profiles to a folder
//
// It begins with a new clusterset for each number of members, and ends by itself: what does not fit
// into -time is left out. Ratios are to the smallest number of members. See package report for what
// all benchmarks have in common.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/scale/simulated"
)

// memoryLimit is how much memory this process may use. It holds all simulated members, and collects
// garbage rarely, to leave the cores to what is measured. A thousand members and their garbage need
// most of it: near the limit this process would collect garbage all the time.
const memoryLimit = 17 << 30

func main() {
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(1500)
	members := flag.String("members", "", "numbers of simulated members, such as 10,50,100 (the default; 10,25 with -quick)")
	services := flag.Int("services", 0, "services of the clusterset, at each number of members (default 1000; 100 with -quick)")
	list := flag.String("scenario", "", "run only these: "+describeScenarios())
	limit := flag.Duration("time", 30*time.Minute, "end after this time, with what was measured until then")
	plots := flag.String("plots", "", "write plots of all values by the number of members and services to this folder (SVG)")
	profiles := flag.String("profiles", "", "write CPU profiles of the broker and the simulation to this folder, in idle, churn, restart, setback")
	r := &report.Report{Title: "Many members on one broker"}
	report.Main("scale", r, func(ctx context.Context, small bool, r *report.Report) error {
		m := &measurement{size: full, services: 1000, members: []int{10, 50, 100}, profiles: *profiles, report: r}
		if small {
			m.size, m.services, m.members = quick, 100, []int{10, 25}
		}
		if *services > 0 {
			m.services = *services
		}
		var err error
		if *members != "" {
			if m.members, err = parseMembers(*members); err != nil {
				return err
			}
		}
		if m.scenarios, err = selectScenarios(*list); err != nil {
			return err
		}
		r.Peers = []string{fmt.Sprintf("%d members", m.members[0])}
		err = m.run(ctx, *limit)
		if *plots != "" { // also of what was measured before an error
			err = errors.Join(err, m.writePlots(*plots))
		}
		return err
	})
}

func describeScenarios() string {
	var out []string
	for _, s := range scenarios {
		out = append(out, fmt.Sprintf("%s (%s)", s.name, s.about))
	}
	return strings.Join(out, ", ")
}

// parseMembers returns the numbers of a list, in ascending order.
func parseMembers(list string) ([]int, error) {
	var out []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2*teamSize || n > simulated.MaxMembers*10/11 {
			return nil, fmt.Errorf("-members: want numbers from %d to %d, such as 10,50,100, not %q", 2*teamSize, simulated.MaxMembers*10/11, text)
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// measurement runs the scenarios with several numbers of members.
type measurement struct {
	size      sizes
	services  int
	members   []int
	scenarios []scenario
	profiles  string
	report    *report.Report

	byMembers, byServices values
	series                []series
}

// values are results by name, in the order in which they were first added.
type values struct {
	names  []string
	points map[string][]point
}

// point is a value with so many members, or with so many services.
type point struct {
	number int
	value  float64
	unit   string
}

// add adds a value, and returns the first one of that name.
func (v *values) add(name string, p point) (first point) {
	if v.points == nil {
		v.points = map[string][]point{}
	}
	if _, known := v.points[name]; !known {
		v.names = append(v.names, name)
	}
	v.points[name] = append(v.points[name], p)
	return v.points[name][0]
}

// series is a value per second.
type series struct {
	name   string
	values []float64
}

func (m *measurement) run(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errOver)
	defer cancel()
	for _, n := range m.members {
		err := m.runWith(ctx, n)
		if errors.Is(err, errOver) {
			m.report.Say("the time of %s is over: %d members and more were not measured completely: %v", limit, n, err)
			break
		}
		if err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
	}
	m.addSlopes()
	return nil
}

var errOver = errors.New("the time is over")

// runWith measures one number of members.
func (m *measurement) runWith(ctx context.Context, n int) error {
	m.report.Say("%d members: starting a broker and two real members", n)
	e, err := newEnvironment(ctx, asInProduction)
	if err != nil {
		return err
	}
	defer debug.FreeOSMemory() // of the members that ended
	defer e.close()
	e.profiles = m.profiles
	return m.runOn(ctx, e, n)
}

// runOn builds up a clusterset and runs the scenarios on it.
func (m *measurement) runOn(ctx context.Context, e *environment, n int) error {
	r := &rows{m, n}
	r.Say("inviting and starting simulated members, %d at a time", wave)
	start := time.Now()
	if err := e.grow(ctx, n); err != nil {
		return fmt.Errorf("start the members: %w", err)
	}
	r.Add("start of a clusterset, per member", time.Since(start).Seconds()/float64(n), "s", "")
	r.Say("exporting %d services from %d clusters each", m.services, exporters)
	start = time.Now()
	for first := 0; first < m.services; first += servicesAtOnce {
		if err := e.populate(ctx, first, min(first+servicesAtOnce, m.services)); err != nil {
			return err
		}
		if _, err := e.awaitSettled(ctx); err != nil {
			return fmt.Errorf("export the services: %w", err)
		}
	}
	r.Add(fmt.Sprintf("export of %d services → all imported", m.services), time.Since(start).Seconds(), "s", "")
	runtime.GC() // of the start, so that no scenario pays for it
	for _, s := range m.scenarios {
		if m.size.quiet {
			if err := m.report.AwaitQuiet(ctx); err != nil {
				return err
			}
		}
		r.Say("%s: %s", s.name, s.about)
		if err := s.run(ctx, e, m.size, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// rows adds results with one number of members to the report.
type rows struct {
	m       *measurement
	members int
}

// Add implements results.
func (r *rows) Add(name string, value float64, unit, detail string) {
	row := report.Row{Name: fmt.Sprintf("%d members: %s", r.members, name), Value: value, Unit: unit, Detail: detail}
	if first := r.m.byMembers.add(name, point{r.members, value, unit}); first.number < r.members {
		row.Peers = []float64{first.value}
	}
	r.m.report.Add(row)
}

// AddWith implements results.
func (r *rows) AddWith(services int, name string, value float64, unit, detail string) {
	first := r.m.byServices.add(fmt.Sprintf("%d members: %s", r.members, name), point{services, value, unit})
	if first.number < services {
		detail = strings.TrimPrefix(detail+fmt.Sprintf("; %.2f × with %d", value/first.value, first.number), "; ")
	}
	r.m.report.Add(report.Row{
		Name: fmt.Sprintf("%d members, %d services: %s", r.members, services, name), Value: value, Unit: unit, Detail: detail,
	})
}

// Series implements results.
func (r *rows) Series(name string, values []float64) {
	r.m.series = append(r.m.series, series{fmt.Sprintf("%d members, %s", r.members, name), values})
}

// Say implements results.
func (r *rows) Say(format string, args ...any) {
	r.m.report.Say("%d members: %s", r.members, fmt.Sprintf(format, args...))
}

// addSlopes adds how values grow with the number of members or services: the exponent is 0 for what
// does not depend on it, 1 for what grows in proportion, 2 for what grows with the square.
func (m *measurement) addSlopes() {
	add := func(by string, v values) {
		for _, name := range v.names {
			if points := v.points[name]; len(points) > 1 {
				m.report.Add(report.Row{Name: fmt.Sprintf("slope by %s: %s", by, name), Value: exponent(points)})
			}
		}
	}
	add("members", m.byMembers)
	add("services", m.byServices)
}
