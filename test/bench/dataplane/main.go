// Command dataplane measures seamark-proxy and kube-proxy's nftables mode with the same endpoints
// from the same API server, each on a node made of network namespaces, and compares both with
// connections directly to the pod.
//
//	go run ./test/bench/dataplane            # 10,000 services with 5 endpoints; about five minutes
//	go run ./test/bench/dataplane -quick     # 1,000 services; about one
//	go run ./test/bench/dataplane -memory    # the memory of seamark-proxy, to 100,000 endpoints
//	go run ./test/bench/dataplane -unreachable  # until connections avoid an unreachable cluster
//
// It needs root. Package report has what all benchmarks share.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// sizes is how much is measured.
type sizes struct {
	few, many  int // services
	endpoints  int // of each
	updates    int // of one service, with seamark-proxy
	slowUpdate int // the same with kube-proxy, which is slower
	rounds     int // of connections
	round      time.Duration
	memoryOnly bool // no kube-proxy and no Services
}

var (
	full  = sizes{few: 10, many: 10_000, endpoints: 5, updates: 30, slowUpdate: 4, rounds: 24, round: 500 * time.Millisecond}
	quick = sizes{few: 10, many: 1_000, endpoints: 5, updates: 10, slowUpdate: 3, rounds: 3, round: time.Second}
)

func main() {
	memoryOnly := flag.Bool("memory", false, "measure only the memory of seamark-proxy, to 100,000 endpoints")
	unreachable := flag.Bool("unreachable", false, "measure only how fast seamark-proxy leaves out an unreachable cluster")
	r := &report.Report{Title: "Data plane: seamark-proxy compared with kube-proxy (nftables) and with no proxy",
		Peers: []string{"kube-proxy", "direct"}}
	report.Main("dataplane", r, func(ctx context.Context, small bool, r *report.Report) error {
		if *memoryOnly {
			r.Title, r.Peers = "Memory of seamark-proxy", nil
			return runMemory(ctx, r)
		}
		if *unreachable {
			r.Title, r.Peers = "Time until seamark-proxy leaves out an unreachable cluster", nil
			return runUnreachable(ctx, small, r)
		}
		size := full
		if small {
			size = quick
		}
		return run(ctx, size, r)
	})
}

func run(ctx context.Context, size sizes, out *report.Report) error {
	b, err := newTestbed(ctx, size)
	if err != nil {
		return err
	}
	defer b.close()
	r := &results{size: size}
	for _, step := range []struct {
		name string
		do   func(context.Context, *testbed, *results) error
	}{
		{"create the first services", func(ctx context.Context, b *testbed, _ *results) error { return b.createServices(ctx, size.few) }},
		{"seamark-proxy with few services", func(ctx context.Context, b *testbed, r *results) error {
			return measure(ctx, b, b.seamark, size.updates, &r.seamark.few)
		}},
		{"kube-proxy with few services", func(ctx context.Context, b *testbed, r *results) error {
			return measure(ctx, b, b.kubeProxy, size.slowUpdate, &r.kubeProxy.few)
		}},
		{"create the other services", func(ctx context.Context, b *testbed, _ *results) error { return b.createServices(ctx, size.many) }},
		{"seamark-proxy with many services", func(ctx context.Context, b *testbed, r *results) error {
			return measure(ctx, b, b.seamark, size.updates, &r.seamark.many)
		}},
		{"kube-proxy with many services", func(ctx context.Context, b *testbed, r *results) error {
			return measure(ctx, b, b.kubeProxy, size.slowUpdate, &r.kubeProxy.many)
		}},
		{"connections, in turns", connections},
		{"memory of the rules", memory},
	} {
		out.Say("%s", step.name)
		if err := step.do(ctx, b, r); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	r.add(out)
	return nil
}
