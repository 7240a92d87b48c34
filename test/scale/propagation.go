package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/seamark-dev/seamark/internal/cli/bench"
	"github.com/seamark-dev/seamark/test/bench/report"
)

// propagate exports, changes and unexports services, one after the other, between the real members.
// `seamark bench` measures it, in a process of its own: this one is busy with all simulated
// members, and would see changes late. Clusters of a fleet have cores of their own, so meanwhile
// the simulation has only what the broker and the real members leave.
func (e *environment) propagate(ctx context.Context, rounds int) (result bench.Result, err error) {
	from, to := e.planes[1], e.planes[2]
	measure := exec.CommandContext(ctx, e.cli, "bench", "--from", e.real[0], "--to", e.real[1],
		"--rounds", strconv.Itoa(rounds), "--timeout", "1m", "-o", "json")
	measure.Env = append(os.Environ(), "KUBECONFIG="+from.DirectKubeconfig()+string(os.PathListSeparator)+to.DirectKubeconfig())
	var out, messages bytes.Buffer
	measure.Stdout, measure.Stderr = &out, &messages
	if err := measure.Start(); err != nil {
		return result, err
	}
	// After the start: a new process inherits its policy.
	err = errors.Join(yieldCores(), measure.Wait(), takeCores())
	if err != nil {
		return result, fmt.Errorf("measure propagation: %w\n%s", err, &messages)
	}
	return result, json.Unmarshal(out.Bytes(), &result)
}

// addPropagation adds how long a user waited in propagate.
func addPropagation(measured bench.Result, add func(name string, value float64, unit, detail string)) {
	for _, m := range measured.Measured {
		if !strings.HasPrefix(m.Name, "of that") {
			add(m.Name+", p50", report.Milliseconds(m.P50), "ms", "")
			add(m.Name+", p99", report.Milliseconds(m.P99), "ms", fmt.Sprintf("of %d", measured.Rounds))
		}
	}
}
