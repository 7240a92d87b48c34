// Command dns measures seamark-dns and two other servers in turns of a second, on the same machine,
// with the same API server and behind the same plugins, those of the chart's Corefile: CoreDNS with
// a plugin that gives every query the same answer (the ceiling), and CoreDNS's own `kubernetes …
// multicluster` (in the binary of seamark-dns). Then it measures what a pod gets from the cluster's
// own DNS. It needs dnsperf and taskset (Debian: dnsperf, util-linux).
//
//	go run ./test/bench/dns            # 1,000 and 10,000 services, about five minutes
//	go run ./test/bench/dns -quick     # 1,000 services, about a minute
//	go run ./test/bench/dns -memory    # the memory of seamark-dns, to 100,000 headless endpoints
//	go run ./test/bench/dns -o json
//
// Server and dnsperf are pinned to different cores if the machine has two. CPU per query varies
// least. Package report has what all benchmarks share.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// sizes is how much is measured.
type sizes struct {
	services []int // each number in turn, growing
	starts   int   // of each server, of which the fastest counts
	turns    int   // of load on each server, a second each
	changes  int
}

var (
	full  = sizes{services: []int{1000, 10000}, starts: 2, turns: 15, changes: 200}
	quick = sizes{services: []int{1000}, starts: 1, turns: 5, changes: 50}
)

func main() {
	r := &report.Report{Title: "DNS: seamark-dns compared with a constant answer and CoreDNS's own plugin",
		Peers: []string{"constant", "in-tree", "cluster.local"}}
	memoryOnly := flag.Bool("memory", false, "measure only the memory of seamark-dns, to 100,000 headless endpoints")
	report.Main("dns", r, func(ctx context.Context, small bool, r *report.Report) error {
		if *memoryOnly {
			r.Title, r.Peers = "Memory of seamark-dns", nil
			return runMemory(ctx, r)
		}
		size := full
		if small {
			size = quick
		}
		return run(ctx, size, r)
	})
}

func run(ctx context.Context, size sizes, r *report.Report) error {
	r.Say("building the servers and starting a control plane")
	b, err := newTestbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.addHeadless(ctx); err != nil {
		return err
	}
	for _, n := range size.services {
		r.Say("making %d services", n)
		if err := b.addServices(ctx, n); err != nil {
			return err
		}
		if err := b.measure(ctx, n, size, r); err != nil {
			return fmt.Errorf("with %d services: %w", n, err)
		}
	}
	n := size.services[0]
	if err := b.addLocalServices(ctx, n); err != nil {
		return err
	}
	return b.measurePod(ctx, n, size, r)
}
