// Command dns measures seamark-dns beside two others, one after another in turns on the same machine and the same API server: CoreDNS with a
// plugin that gives every question the same answer (the ceiling), and CoreDNS's own `kubernetes … multicluster` (in the same binary as
// ours). Needs dnsperf and taskset (Debian: dnsperf, util-linux).
//
//	go run ./test/bench/dns            # 1,000 and 10,000 services, about five minutes
//	go run ./test/bench/dns -quick     # 1,000 services, about a minute
//	go run ./test/bench/dns -o json
//
// Server and dnsperf are pinned to different cores where the machine has two. Progress goes to stderr, the table to stdout. It exits with
// 1 when something could not be measured, but not when a budget was missed: times on a shared machine are noise. CPU per query is the steadiest
// figure.
package main

import (
	"context"
	"errors"
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
	services []int         // each number in turn, growing
	rounds   int           // of load on each server
	load     time.Duration // of one round
	changes  int
}

var (
	full  = sizes{services: []int{1000, 10000}, rounds: 3, load: 5 * time.Second, changes: 20}
	quick = sizes{services: []int{1000}, rounds: 2, load: 2 * time.Second, changes: 5}
)

func main() {
	small := flag.Bool("quick", false, "measure fewer and smaller things, in about a minute")
	output := flag.String("o", "table", "table or json")
	flag.Parse()
	if flag.NArg() > 0 || (*output != "table" && *output != "json") {
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
	report := &report{Progress: os.Stderr}
	err := run(ctx, size, report)
	if *output == "json" {
		err = errors.Join(err, report.writeJSON(os.Stdout))
	} else {
		err = errors.Join(err, report.writeTable(os.Stdout))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dns:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context, size sizes, r *report) error {
	r.say("building the servers and starting a control plane")
	b, err := newBed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.addHeadless(ctx); err != nil {
		return err
	}
	for _, n := range size.services {
		r.say("making %d services", n)
		if err := b.addServices(ctx, n); err != nil {
			return err
		}
		if err := b.measure(ctx, n, size, r); err != nil {
			return fmt.Errorf("with %d services: %w", n, err)
		}
	}
	return nil
}
