package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/bench/report"
)

// figures are the measurements of one server.
type figures struct {
	answerable        time.Duration
	denied            int
	rates, cpus       []float64 // one per round; microseconds of CPU
	bigRates, bigCPUs []float64 // of the headless service
	p50, p99          time.Duration
	changes           []time.Duration
	resident          int64
}

// latencyRate is the load under which latencies are measured: well below the capacity of all
// servers.
const latencyRate = 5000

// measure measures all servers with n services.
func (b *testbed) measure(ctx context.Context, n int, size sizes, r *report.Report) error {
	queries, err := b.queryFile("services", n, zone, func() string { return serviceName(rand.IntN(n)) })
	if err != nil {
		return err
	}
	big, err := b.queryFile("headless", 1000, zone, func() string { return headlessName })
	if err != nil {
		return err
	}
	found := map[string]*figures{}
	for _, k := range servers {
		found[k.name] = &figures{}
	}
	for round := range size.rounds {
		for _, k := range servers {
			r.Say("%d services, round %d: %s", n, round+1, k.name)
			if err := b.round(ctx, k, n, round, size, queries, big, found[k.name]); err != nil {
				return err
			}
		}
	}
	compare(r, n, found)
	return nil
}

// queryFile writes queries for dnsperf.
func (b *testbed) queryFile(name string, n int, suffix string, service func() string) (string, error) {
	var text strings.Builder
	for range max(n, 1000) {
		fmt.Fprintf(&text, "%s.%s A\n", service(), suffix)
	}
	path := filepath.Join(b.dir, "queries-"+name)
	return path, os.WriteFile(path, []byte(text.String()), 0o600)
}

// round measures one server once, from start to end.
func (b *testbed) round(ctx context.Context, k server, n, round int, size sizes, queries, big string, f *figures) error {
	p, err := b.startServer(k)
	if err != nil {
		return err
	}
	defer p.stop()
	took, denied, err := p.answerable(ctx, n)
	if err != nil {
		return err
	}
	if round == 0 || took < f.answerable {
		f.answerable = took
	}
	f.denied += denied
	l, err := b.load(ctx, p, queries, size.load, 0)
	if err != nil {
		return err
	}
	f.rates, f.cpus = append(f.rates, l.perSecond), append(f.cpus, float64(l.cpu)/float64(time.Microsecond))
	if l, err = b.load(ctx, p, big, 2*time.Second, 0); err != nil {
		return err
	}
	f.bigRates, f.bigCPUs = append(f.bigRates, l.perSecond), append(f.bigCPUs, float64(l.cpu)/float64(time.Microsecond))
	f.resident = usageOf(p.cmd.Process.Pid).anonymousOnly
	if round > 0 {
		return nil
	}
	if l, err = b.load(ctx, p, queries, 2*time.Second, latencyRate); err != nil {
		return err
	}
	f.p50, f.p99 = report.Percentile(l.latencies, 0.5), report.Percentile(l.latencies, 0.99)
	if k.name == "constant" {
		return nil
	}
	f.changes, err = b.changeAnswers(ctx, p, size.changes)
	return err
}

// changeAnswers changes the address of a service several times and measures how long each change
// takes, from the API server's response until the name has the new address.
func (b *testbed) changeAnswers(ctx context.Context, p *process, n int) (took []time.Duration, err error) {
	si := &mcsv1beta1.ServiceImport{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: benchNamespace, Name: serviceName(0)}, si); err != nil {
		return nil, err
	}
	for i := range n {
		want := fmt.Sprintf("243.255.%d.%d", i, 1+rand.IntN(250))
		si.Spec.IPs = []string{want}
		if err := b.client.Update(ctx, si); err != nil {
			return nil, err
		}
		written := time.Now()
		for {
			reply, err := p.query(serviceName(0) + "." + zone)
			if err == nil && len(reply.Answer) == 1 && reply.Answer[0].(*dns.A).A.String() == want {
				break
			}
			if time.Since(written) > 10*time.Second {
				return nil, fmt.Errorf("%s does not answer with the new address", p.server.name)
			}
		}
		took = append(took, time.Since(written))
	}
	return took, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}
