package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/test/netbed"
)

// loadFigures are the measurements with one number of services.
type loadFigures struct {
	full      time.Duration   // the first sync, as the program itself measures it
	first     time.Duration   // from the start of the process to the first connection
	updates   []time.Duration // syncs of one change, as the program itself measures them
	noticed   []time.Duration // from the change on the API server to the first connection to the new endpoint
	resident  int64
	proxyName string
}

const timeout = 5 * time.Minute

// measure starts a proxy, changes one service several times and stops the proxy. Its rules stay.
func measure(ctx context.Context, b *testbed, s *contender, updates int, out *loadFigures) error {
	// Each proxy starts on a node without rules, so that its first sync is a full load.
	if err := s.clean(); err != nil {
		return err
	}
	out.proxyName = s.name
	started := time.Now()
	if err := s.start(filepath.Join(b.dir, s.name+".log")); err != nil {
		return err
	}
	defer s.kill()
	if err := s.waitReaches(b.movingPod); err != nil {
		return err
	}
	out.first = time.Since(started)
	time.Sleep(2 * time.Second) // syncs that events of the start caused come to their end
	page, err := s.node.Get(s.metrics)
	if err != nil {
		return err
	}
	sum, count := netbed.Metric(page, s.fullSum), netbed.Metric(page, s.fullCount)
	if count == 0 {
		return fmt.Errorf("%s has no metric %s", s.name, s.fullCount)
	}
	out.full = time.Duration(sum * float64(time.Second))
	s.lastSum, s.lastNumber = netbed.Metric(page, s.oneSum), netbed.Metric(page, s.oneCount)
	for range updates {
		noticed, took, err := s.change(ctx, b)
		if err != nil {
			return err
		}
		out.noticed, out.updates = append(out.noticed, noticed), append(out.updates, took)
	}
	out.resident = resident(s.process.Process.Pid)
	return nil
}

// change moves the moving service to another pod.
func (s *contender) change(ctx context.Context, b *testbed) (noticed, took time.Duration, err error) {
	slice := &discoveryv1.EndpointSlice{}
	if err := b.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("svc-%d", movingService)}, slice); err != nil {
		return 0, 0, err
	}
	b.movingPod = (b.movingPod + 1) % len(s.pods)
	slice.Endpoints[0].Addresses[0] = s.pods[b.movingPod].IPv4.String()
	if err := b.api.Update(ctx, slice); err != nil {
		return 0, 0, err
	}
	changed := time.Now()
	if err := s.waitReaches(b.movingPod); err != nil {
		return 0, 0, err
	}
	noticed = time.Since(changed)
	// The program counts a sync after its effect.
	for until := time.Now().Add(timeout); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		page, err := s.node.Get(s.metrics)
		if err != nil {
			return 0, 0, err
		}
		sum, count := netbed.Metric(page, s.oneSum), netbed.Metric(page, s.oneCount)
		if count > s.lastNumber {
			took = time.Duration((sum - s.lastSum) / (count - s.lastNumber) * float64(time.Second))
			s.lastSum, s.lastNumber = sum, count
			return noticed, took, nil
		}
	}
	return 0, 0, fmt.Errorf("%s does not count its sync", s.name)
}

// waitReaches waits until the moving service leads to the pod with the given number.
func (s *contender) waitReaches(pod int) error {
	var last error
	for until := time.Now().Add(timeout); time.Now().Before(until); time.Sleep(time.Millisecond) {
		select {
		case <-s.exited:
			return fmt.Errorf("%s has ended", s.name)
		default:
		}
		a, err := s.client.TCPWithin(s.vip(movingService), 200*time.Millisecond)
		if err == nil && a.Server == s.pods[pod].Name {
			return nil
		}
		last = err
	}
	return fmt.Errorf("%s does not lead to %s: %w", s.name, s.pods[pod].Name, last)
}

func (s *contender) start(log string) error {
	file, err := os.Create(log)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // the process has its own copy
	s.process = s.cmd()
	s.process.Stdout, s.process.Stderr = file, file
	s.exited, err = s.node.Start(s.process)
	return err
}

func (s *contender) kill() {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Kill()
		<-s.exited
		s.process = nil
	}
}

// clean removes the proxy's rules.
func (s *contender) clean() error {
	return s.node.Do(func() error {
		for _, table := range s.tables {
			family, name, _ := strings.Cut(table, " ")
			// Adding the table first makes sure that the deletion finds one.
			for _, args := range [][]string{{"add", "table", family, name}, {"delete", "table", family, name}} {
				if out, err := exec.Command("nft", args...).CombinedOutput(); err != nil {
					return fmt.Errorf("nft %v: %w: %s", args, err, out)
				}
			}
		}
		return nil
	})
}

// rate is the result of the rounds of connections.
type rate struct {
	rounds    []float64 // connections per second of each
	latencies []time.Duration
}

// perSecond returns the median of the rounds, so that one disturbed round does not count.
func (r *rate) perSecond() float64 {
	if len(r.rounds) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(r.rounds))[len(r.rounds)/2]
}

func (r *rate) percentile(p int) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	slices.Sort(r.latencies)
	return r.latencies[(len(r.latencies)-1)*p/100]
}

// connections measures new connections with the rules of many services, in turns so that all share
// the same conditions.
func connections(_ context.Context, b *testbed, r *results) error {
	time.Sleep(5 * time.Second) // what the programs left the kernel to do in the background is done
	for range b.size.rounds {
		for _, turn := range []struct {
			side *contender
			vip  bool
			into *rate
		}{{b.seamark, true, &r.seamark.rate}, {b.kubeProxy, true, &r.kubeProxy.rate}, {b.seamark, false, &r.direct}} {
			if err := turn.side.connect(turn.vip, b.size.round, turn.into); err != nil {
				return fmt.Errorf("%s: %w", turn.side.name, err)
			}
		}
	}
	return nil
}

// connect opens connections from two threads for a while.
func (s *contender) connect(throughVIP bool, d time.Duration, into *rate) error {
	var mu sync.Mutex
	var made int
	started := time.Now()
	var running []<-chan error
	for thread := range 2 {
		running = append(running, s.client.Go(func() error {
			var latencies []time.Duration
			for n := thread; time.Since(started) < d; n++ {
				to := s.vip(loadService)
				if !throughVIP {
					to = netbed.At(s.pods[n%len(s.pods)], targetPort)
				}
				took, err := netbed.Connect(to)
				if err != nil {
					return err
				}
				latencies = append(latencies, took)
			}
			mu.Lock()
			defer mu.Unlock()
			into.latencies = append(into.latencies, latencies...)
			made += len(latencies)
			return nil
		}))
	}
	var joined error
	for _, done := range running {
		joined = errors.Join(joined, <-done)
	}
	into.rounds = append(into.rounds, float64(made)/time.Since(started).Seconds())
	return joined
}

// memory measures how much memory the kernel frees when the rules are removed.
func memory(_ context.Context, b *testbed, r *results) error {
	for _, m := range []struct {
		side *contender
		into *int64
	}{{b.kubeProxy, &r.kubeProxy.rules}, {b.seamark, &r.seamark.rules}} {
		before := kernelMemory()
		if err := m.side.clean(); err != nil {
			return err
		}
		for range 20 { // freed in the background
			time.Sleep(250 * time.Millisecond)
			*m.into = max(*m.into, before-kernelMemory())
		}
	}
	return nil
}

// kernelMemory returns what the kernel has allocated for itself, in bytes.
func kernelMemory() int64 {
	return field("/proc/meminfo", "Slab:") + field("/proc/meminfo", "VmallocUsed:") + field("/proc/meminfo", "Percpu:")
}

func resident(pid int) int64 { return field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:") }

// field parses a line such as "Slab: 1234 kB" and returns bytes, zero if there is none.
func field(path, name string) int64 {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}
