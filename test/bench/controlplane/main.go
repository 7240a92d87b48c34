// Command controlplane measures seamark-agent on three real control planes, a broker and two
// members, and compares it with the bare chain: an object created on one API server, seen by a
// watch, a ServiceImport and an EndpointSlice written to another, seen by a watch. Both run in
// turns on the same servers, so that their ratio is meaningful on a busy machine, too.
//
//	go run ./test/bench/controlplane            # everything, about ten minutes
//	go run ./test/bench/controlplane -quick     # fewer and smaller, at most ninety seconds
//	go run ./test/bench/controlplane -o json
//
// See package report for what all benchmarks have in common.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// sizes say how much is measured.
type sizes struct {
	samples  int   // exports one at a time
	bulks    []int // exports at once; the last one is the largest
	podMoves int
	idle     time.Duration // how long idle agents are measured
	scale    int           // services of which memory is measured
	limit    time.Duration
}

var (
	full  = sizes{samples: 50, bulks: []int{200, 1000}, podMoves: 5, idle: 20 * time.Second, scale: 5000, limit: 20 * time.Minute}
	quick = sizes{samples: 20, bulks: []int{200}, podMoves: 2, idle: 5 * time.Second, limit: 90 * time.Second}
)

// sections are measured in this order. Later ones use the services that earlier ones exported.
var sections = []struct {
	name    string
	measure func(context.Context, *environment, sizes, *report.Report) error
}{
	{"one", oneAtATime}, {"bulk", exportsAtOnce}, {"pod", podChange}, {"idle", idleAgents}, {"restart", restarts}, {"scale", manyServices},
}

func main() {
	only := flag.String("only", "", "measure only one section: one, bulk, pod, idle, restart or scale")
	extra := flag.String("agent-args", "", "one more flag for both agents, such as --log-level=debug")
	r := &report.Report{Title: "Control plane: Seamark compared with the bare chain", Peers: []string{"bare chain"}}
	report.Main("controlplane", r, func(ctx context.Context, small bool, r *report.Report) error {
		size := full
		if small {
			size = quick
		}
		var agentArgs []string
		if *extra != "" {
			agentArgs = append(agentArgs, *extra)
		}
		return run(ctx, size, *only, agentArgs, r)
	})
}

func run(ctx context.Context, size sizes, only string, agentArgs []string, r *report.Report) error {
	r.Say("building the agent, starting three control planes and a clusterset")
	e, err := newEnvironment(ctx, agentArgs)
	if err != nil {
		return err
	}
	defer e.close()
	// The limit does not include the build, whose duration depends on the build cache.
	ctx, cancel := context.WithTimeoutCause(ctx, size.limit, fmt.Errorf("not done after %s", size.limit))
	defer cancel()
	for _, section := range sections {
		if only != "" && only != section.name {
			continue
		}
		if err := section.measure(ctx, e, size, r); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
	}
	return nil
}
