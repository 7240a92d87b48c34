package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/test/bench/report"
	"github.com/seamark-dev/seamark/test/harness"
)

// memorySizes are the sizes at which the memory of seamark-dns is measured, growing.
var memorySizes = []struct{ services, headless int }{
	{1_000, 0}, {10_000, 0}, {30_000, 0}, {30_000, 10_000}, {30_000, 50_000}, {30_000, 100_000},
}

// headlessEach is the number of endpoints of each headless service.
const headlessEach = 100

// runMemory reports how much memory seamark-dns needs, which a limit must allow: the most that it
// had while it started and answered as many queries as it could, and while it reloaded its Corefile
// after that, for which it has all objects twice.
func runMemory(ctx context.Context, r *report.Report) error {
	limit, err := chartLimit()
	if err != nil {
		return err
	}
	b, err := newTestbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	headless := 0
	for _, size := range memorySizes {
		r.Say("%d services and %d headless endpoints", size.services, size.headless)
		if err := b.addImports(ctx, size.services); err != nil {
			return err
		}
		if err := b.addHeadlessServices(ctx, headless/headlessEach, size.headless/headlessEach); err != nil {
			return err
		}
		headless = size.headless
		free, err := b.memoryOf(ctx, size.services)
		if err != nil {
			return err
		}
		// A container's server leaves a fifth of its limit to the kernel.
		limited, err := b.memoryOf(ctx, size.services, fmt.Sprintf("GOMEMLIMIT=%d", limit/5*4))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d services, %d headless endpoints: ", size.services, size.headless)
		r.Add(report.Row{Name: name + "start and queries", Value: mebibytes(free.queries), Unit: "MiB"})
		r.Add(report.Row{Name: name + "reload", Value: mebibytes(free.reload), Unit: "MiB"})
		r.Add(report.Row{Name: name + "all of it with the chart's limit", Value: mebibytes(limited.reload), Unit: "MiB",
			Budget: fmt.Sprintf("≤ %.0f MiB", mebibytes(limit)), Over: limited.reload > limit})
	}
	return nil
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// peaks are the most resident memory that a process had, in bytes and with the program itself:
// until it had answered queries, and until it had reloaded its Corefile after that.
type peaks struct{ queries, reload int64 }

// memoryOf runs seamark-dns and returns its memory.
func (b *testbed) memoryOf(ctx context.Context, services int, env ...string) (peaks, error) {
	queries, err := b.queryFile("memory", services, zone, func() string { return serviceName(rand.IntN(services)) })
	if err != nil {
		return peaks{}, err
	}
	p, err := b.startServer(servers[1], env...)
	if err != nil {
		return peaks{}, err
	}
	defer p.stop()
	// It answers nothing before it has read all objects.
	if err := p.answered(ctx, 1, zone); err != nil {
		return peaks{}, err
	}
	if _, err := b.load(ctx, p, queries, 5*time.Second, 0); err != nil {
		return peaks{}, err
	}
	var m peaks
	m.queries = statusField(p.cmd.Process.Pid, "VmHWM:")
	if err := b.reload(ctx, p); err != nil {
		return peaks{}, err
	}
	m.reload = statusField(p.cmd.Process.Pid, "VmHWM:")
	return m, nil
}

// reload makes a server read its Corefile again, with another TTL, and waits until it does.
func (b *testbed) reload(ctx context.Context, p *process) error {
	path := b.corefilePath(p.server)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const ttl = 77
	changed := strings.NewReplacer("ttl 5\n", fmt.Sprintf("ttl %d\n", ttl), "startup_timeout 5s", "startup_timeout 1m").Replace(string(text))
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return err
	}
	for until := time.Now().Add(time.Minute); time.Now().Before(until) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if reply, err := p.query(serviceName(0) + "." + zone); err == nil && len(reply.Answer) == 1 && reply.Answer[0].Header().Ttl == ttl {
			return nil
		}
	}
	return errors.New("seamark-dns does not reload its Corefile")
}

// chartLimit returns the memory limit of the chart's DNS servers.
func chartLimit() (int64, error) {
	text, err := chart.Render(nil)
	if err != nil {
		return 0, err
	}
	for document := range strings.SplitSeq(text, "\n---") {
		d := appsv1.Deployment{}
		if err := yaml.Unmarshal([]byte(document), &d); err != nil {
			return 0, fmt.Errorf("read the chart: %w", err)
		}
		if d.Kind == "Deployment" && d.Name == "seamark-dns" {
			return d.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value(), nil
		}
	}
	return 0, errors.New("the chart has no Deployment seamark-dns")
}

// addImports creates services with a clusterset IP until there are n. They have no slices: servers
// do not read those of such services.
func (b *testbed) addImports(ctx context.Context, n int) error {
	err := harness.Parallel(writers, n-b.services, func(offset int) error {
		i := b.services + offset
		return b.client.Create(ctx, newImport(serviceName(i), mcsv1beta1.ClusterSetIP, address(i)))
	})
	b.services = n
	return err
}

// addHeadlessServices creates headless services with the numbers from first to last.
func (b *testbed) addHeadlessServices(ctx context.Context, first, last int) error {
	return harness.Parallel(writers, last-first, func(offset int) error {
		i := first + offset
		name := fmt.Sprintf("%s-%d", headlessName, i)
		if err := b.client.Create(ctx, newImport(name, mcsv1beta1.Headless)); err != nil {
			return err
		}
		return b.client.Create(ctx, newSlice(name, name, fmt.Sprintf("10.%d.%d", i>>8&255, i&255), headlessEach))
	})
}
