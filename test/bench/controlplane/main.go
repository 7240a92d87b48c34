// Command controlplane measures seamark-agent on three real control planes, a broker and two
// members, and compares it with the bare chain: an object created on one API server, seen by a
// watch, a ServiceImport and an EndpointSlice written to another, seen by a watch. Both run in
// turns on the same servers, so that their ratio is meaningful on a busy machine, too.
//
// It measures until a service is usable: until its ServiceImport in the other cluster has a
// clusterset IP and its slices have ready endpoints.
//
//	go run ./test/bench/controlplane                      # everything, with both data planes
//	go run ./test/bench/controlplane -quick               # fewer and smaller, about two minutes
//	go run ./test/bench/controlplane -data-plane nftables # with one data plane
//	go run ./test/bench/controlplane -quick -only usable  # single exports and 200 at once
//	go run ./test/bench/controlplane -trace               # where each millisecond goes
//	go run ./test/bench/controlplane -sandbox             # as root: nodes, kube-proxy, DNS
//
// See package report for what all benchmarks have in common.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/bench/report"
)

// sizes say how much is measured.
type sizes struct {
	samples  int   // exports one at a time
	bulks    []int // exports at once; the last one is the largest
	podMoves int
	idle     time.Duration // how long idle agents are measured
	scale    int           // services of which memory is measured
	limit    time.Duration // for one data plane
}

// largest returns the size of the largest bulk.
func (s sizes) largest() int { return s.bulks[len(s.bulks)-1] }

var (
	full  = sizes{samples: 50, bulks: []int{200, 1000}, podMoves: 5, idle: 20 * time.Second, scale: 5000, limit: 20 * time.Minute}
	quick = sizes{samples: 20, bulks: []int{200}, podMoves: 2, idle: 5 * time.Second, limit: 4 * time.Minute}
)

// sections are measured in this order. Later ones use the services that earlier ones exported.
var sections = []section{
	{"one", oneAtATime}, {"bulk", exportsAtOnce}, {"pod", podChange}, {"idle", idleAgents}, {"restart", restarts},
	{"unexport", unexportsAtOnce}, {"scale", manyServices}, {"services", creatingServices},
}

// sandboxSections are measured in a sandbox.
var sandboxSections = []section{{"one", oneAtATime}, {"client", clientConnects}, {"bulk", exportsAtOnce}, {"unexport", unexportsAtOnce}}

type section struct {
	name    string
	measure func(context.Context, *environment, sizes, *report.Report) error
}

// usableSections are the sections that measure until services are usable: -only usable.
var usableSections = []string{"one", "bulk"}

func main() {
	only := flag.String("only", "", "measure only this: usable (the same as one,bulk), or a list of one, bulk, pod, idle, restart, unexport,"+
		" scale, services; in a sandbox one, client, bulk, unexport")
	plane := flag.String("data-plane", "both", "nftables, service or both")
	trace := flag.Bool("trace", false, "report for single services when each object was written on each API server, and nothing else")
	inSandbox := flag.Bool("sandbox", false, "measure in a sandbox: clusters with nodes, kube-proxy and DNS, and a client in a pod (needs root)")
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
		start, from := newEnvironment, sections
		if *inSandbox {
			start, from = newSandbox, sandboxSections
		}
		selected, err := selectSections(*only, from)
		if err != nil {
			return err
		}
		if *trace {
			selected = []section{{"trace", traceSteps}}
		}
		planes, err := selectPlanes(*plane)
		if err != nil {
			return err
		}
		for _, p := range planes {
			r.Say("%s: building and starting a clusterset", p.Name)
			e, err := start(ctx, p, agentArgs)
			if err == nil {
				err = e.run(ctx, size, selected, r)
			}
			if err != nil {
				return fmt.Errorf("data plane %s: %w", p.Name, err)
			}
		}
		return nil
	})
}

// selectSections returns the sections of a comma-separated list; all for the empty list.
func selectSections(list string, from []section) ([]section, error) {
	if list == "" {
		return from, nil
	}
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name == "usable" {
			names = append(names, usableSections...)
			continue
		}
		if !slices.ContainsFunc(from, func(s section) bool { return s.name == name }) {
			return nil, fmt.Errorf("-only: there is no section %q", name)
		}
		names = append(names, name)
	}
	return slices.DeleteFunc(slices.Clone(from), func(s section) bool { return !slices.Contains(names, s.name) }), nil
}

// selectPlanes returns the data planes that are measured.
func selectPlanes(name string) ([]objects.DataPlane, error) {
	names := []v1alpha1.DataPlane{v1alpha1.DataPlaneNFTables, v1alpha1.DataPlaneService}
	if name != "both" {
		names = []v1alpha1.DataPlane{v1alpha1.DataPlane(name)}
	}
	var planes []objects.DataPlane
	for _, name := range names {
		if _, measured := budgetsOf[name]; !measured {
			return nil, fmt.Errorf("-data-plane: use nftables, service or both, not %q", name)
		}
		planes = append(planes, objects.DataPlaneOf(name))
	}
	return planes, nil
}

// run measures the sections and closes the environment. The names of rows begin with the data
// plane.
func (e *environment) run(ctx context.Context, size sizes, selected []section, r *report.Report) error {
	defer e.close()
	first := len(r.Rows)
	defer func() {
		for i := range r.Rows[first:] {
			r.Rows[first+i].Name = fmt.Sprintf("%s: %s", e.plane.Name, r.Rows[first+i].Name)
		}
	}()
	// The limit does not include the build, whose duration depends on the build cache.
	ctx, cancel := context.WithTimeoutCause(ctx, size.limit, fmt.Errorf("not done after %s", size.limit))
	defer cancel()
	for _, section := range selected {
		if err := section.measure(ctx, e, size, r); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return fmt.Errorf("%w: %w", cause, err)
			}
			return err
		}
	}
	return nil
}
