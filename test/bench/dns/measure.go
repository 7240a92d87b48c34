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
	rates, cpus       []float64 // one per turn; microseconds of CPU
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
	for range size.starts {
		for _, k := range servers {
			r.Say("%d services, start of %s", n, k.name)
			p, err := b.startMeasured(ctx, k, n, found[k.name])
			if err != nil {
				return err
			}
			p.stop()
		}
	}
	if err := b.measureLoad(ctx, n, size, queries, big, r, found); err != nil {
		return err
	}
	r.Say("%d services, changes", n)
	if err := b.measureChanges(ctx, n, size.changes, found); err != nil {
		return err
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

// startMeasured starts a server and waits until it answers all names.
func (b *testbed) startMeasured(ctx context.Context, k server, n int, f *figures) (*process, error) {
	p, err := b.startServer(k)
	if err != nil {
		return nil, err
	}
	took, denied, err := p.answerable(ctx, n)
	if err != nil {
		p.stop()
		return nil, err
	}
	if f.answerable == 0 || took < f.answerable {
		f.answerable = took
	}
	f.denied += denied
	return p, nil
}

// measureLoad loads the servers in turns of a second, all of which run: the speed of a shared
// machine changes within seconds, so longer turns compare the machine with itself.
func (b *testbed) measureLoad(ctx context.Context, n int, size sizes, queries, big string, r *report.Report, found map[string]*figures) error {
	var running []*process
	for _, k := range servers {
		p, err := b.startMeasured(ctx, k, n, found[k.name])
		if err != nil {
			return err
		}
		defer p.stop()
		running = append(running, p)
	}
	r.Say("%d services, %d turns of load", n, size.turns)
	for turn := range size.turns {
		for i := range running {
			p := running[(turn+i)%len(running)] // each is first as often as the others
			f := found[p.server.name]
			if err := b.turn(ctx, p, queries, &f.rates, &f.cpus); err != nil {
				return err
			}
			if turn%3 == 0 {
				if err := b.turn(ctx, p, big, &f.bigRates, &f.bigCPUs); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range running {
		f := found[p.server.name]
		f.resident = usageOf(p.cmd.Process.Pid).anonymousOnly
		l, err := b.load(ctx, p, queries, 2*time.Second, latencyRate)
		if err != nil {
			return err
		}
		f.p50, f.p99 = report.Percentile(l.latencies, 0.5), report.Percentile(l.latencies, 0.99)
	}
	return nil
}

// turn loads a server for a second.
func (b *testbed) turn(ctx context.Context, p *process, queries string, rates, cpus *[]float64) error {
	l, err := b.load(ctx, p, queries, time.Second, 0)
	if err != nil {
		return err
	}
	*rates, *cpus = append(*rates, l.perSecond), append(*cpus, float64(l.cpu)/float64(time.Microsecond))
	return nil
}

// measureChanges changes the address of a service many times and measures how long each change
// takes, from the API server's response until the name has the new address. The servers run at the
// same time and are queried in turns: a change takes less than a millisecond, so other load on the
// machine would decide the ratio of two servers that run one after the other.
func (b *testbed) measureChanges(ctx context.Context, n, changes int, found map[string]*figures) error {
	var running []*process
	for _, k := range servers[1:] { // the first always answers the same
		p, err := b.startServer(k)
		if err != nil {
			return err
		}
		defer p.stop()
		if err := p.answered(ctx, n, zone); err != nil {
			return err
		}
		running = append(running, p)
	}
	si := &mcsv1beta1.ServiceImport{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: benchNamespace, Name: serviceName(0)}, si); err != nil {
		return err
	}
	for i := range changes * len(running) {
		p := running[i%len(running)]
		took, err := b.changeAnswer(ctx, p, si, fmt.Sprintf("243.255.%d.%d", i/250, 1+i%250))
		if err != nil {
			return err
		}
		found[p.server.name].changes = append(found[p.server.name].changes, took)
	}
	return nil
}

// changeAnswer gives a service an address and waits until a server answers with it.
func (b *testbed) changeAnswer(ctx context.Context, p *process, si *mcsv1beta1.ServiceImport, address string) (time.Duration, error) {
	si.Spec.IPs = []string{address}
	if err := b.client.Update(ctx, si); err != nil {
		return 0, err
	}
	written := time.Now()
	for time.Since(written) < 10*time.Second {
		reply, err := p.query(si.Name + "." + zone)
		if err == nil && len(reply.Answer) == 1 && reply.Answer[0].(*dns.A).A.String() == address {
			return time.Since(written), nil
		}
	}
	return 0, fmt.Errorf("%s does not answer with the new address", p.server.name)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}
