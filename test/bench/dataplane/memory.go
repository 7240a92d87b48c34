package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// memorySizes are the numbers of endpoints at which the memory of seamark-proxy is measured.
var memorySizes = []int{1_000, 10_000, 25_000, 50_000, 100_000}

// runMemory prints how much memory seamark-proxy needs: the most it ever had, which a limit must
// allow, and what it keeps.
func runMemory(ctx context.Context, out *report.Report) error {
	size := full
	size.memoryOnly = true
	b, err := newTestbed(ctx, size)
	if err != nil {
		return err
	}
	defer b.close()
	for _, endpoints := range memorySizes {
		services := endpoints / size.endpoints
		out.Say("%d services with %d endpoints", services, endpoints)
		if err := b.createServices(ctx, services); err != nil {
			return err
		}
		peak, kept, err := memoryOf(b)
		if err != nil {
			return fmt.Errorf("%d endpoints: %w", endpoints, err)
		}
		name := fmt.Sprintf("%s services, %s endpoints: ", count(services), count(endpoints))
		out.Add(report.Row{Name: name + "peak", Value: mebibytes(peak), Unit: "MiB"})
		out.Add(report.Row{Name: name + "kept", Value: mebibytes(kept), Unit: "MiB"})
	}
	return nil
}

// memoryOf starts the proxy on a node without rules and returns its memory.
func memoryOf(b *testbed) (peak, kept int64, err error) {
	if err := b.seamark.clean(); err != nil {
		return 0, 0, err
	}
	if err := b.seamark.start(filepath.Join(b.dir, "memory.log")); err != nil {
		return 0, 0, err
	}
	defer b.seamark.kill()
	if err := b.seamark.waitReaches(0); err != nil {
		return 0, 0, err
	}
	time.Sleep(5 * time.Second) // the garbage of the start is collected
	status := fmt.Sprintf("/proc/%d/status", b.seamark.process.Process.Pid)
	return field(status, "VmHWM:"), field(status, "VmRSS:"), nil
}
