// Command dataplane measures seamark-proxy beside kube-proxy's nftables mode: the same endpoints from the same API server, each on a node
// made of network namespaces, and both against connections straight to the pod.
//
//	go run ./test/bench/dataplane            # 10,000 services with 5 endpoints; about five minutes
//	go run ./test/bench/dataplane -quick     # 1,000 services; about one
//
// It needs root. Progress goes to stderr, the table to stdout. It exits with 1 when something could not be measured, but not when a
// budget was missed: times on a shared machine are noise, and a reader judges them better than an exit code.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// sizes are how much is measured.
type sizes struct {
	few, many  int // services
	endpoints  int // of each
	updates    int // of one service, for ours
	slowUpdate int // the same for kube-proxy, which takes its time
	rounds     int // of connections
	round      time.Duration
}

var (
	full  = sizes{few: 10, many: 10_000, endpoints: 5, updates: 30, slowUpdate: 4, rounds: 6, round: 2 * time.Second}
	quick = sizes{few: 10, many: 1_000, endpoints: 5, updates: 10, slowUpdate: 3, rounds: 3, round: time.Second}
)

func main() {
	small := flag.Bool("quick", false, "measure with 1,000 services")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetOutput(io.Discard) // of the libraries; what goes wrong here is reported as an error
	klog.LogToStderr(false)
	ctrllog.SetLogger(klog.Background())
	size := full
	if *small {
		size = quick
	}
	if err := run(ctx, size); err != nil {
		fmt.Fprintln(os.Stderr, "dataplane:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context, size sizes) error {
	b, err := newBed(ctx, size)
	if err != nil {
		return err
	}
	defer b.close()
	r := &results{size: size}
	for _, step := range []struct {
		name string
		do   func(context.Context, *bed, *results) error
	}{
		{"create the first services", func(ctx context.Context, b *bed, _ *results) error { return b.createServices(ctx, size.few) }},
		{"seamark-proxy with few services", func(ctx context.Context, b *bed, r *results) error {
			return measure(ctx, b, b.ours, size.updates, &r.ours.few)
		}},
		{"kube-proxy with few services", func(ctx context.Context, b *bed, r *results) error {
			return measure(ctx, b, b.theirs, size.slowUpdate, &r.theirs.few)
		}},
		{"create the other services", func(ctx context.Context, b *bed, _ *results) error { return b.createServices(ctx, size.many) }},
		{"seamark-proxy with many services", func(ctx context.Context, b *bed, r *results) error {
			return measure(ctx, b, b.ours, size.updates, &r.ours.many)
		}},
		{"kube-proxy with many services", func(ctx context.Context, b *bed, r *results) error {
			return measure(ctx, b, b.theirs, size.slowUpdate, &r.theirs.many)
		}},
		{"connections, in turns", connections},
		{"memory of the rules", memory},
	} {
		started := time.Now()
		fmt.Fprintf(os.Stderr, "%s ...", step.name)
		if err := step.do(ctx, b, r); err != nil {
			fmt.Fprintln(os.Stderr)
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(os.Stderr, " %.1f s\n", time.Since(started).Seconds())
	}
	return r.write(os.Stdout)
}
