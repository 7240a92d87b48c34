package main

import (
	"bytes"
	"context"
	"os"
	"time"

	"github.com/seamark-dev/seamark/test/bench/usage"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/simulated"
)

// cost is what the broker and the simulation used, and what the broker did.
type cost struct {
	apiServer, etcd, simulation, realMembers usage.Usage
	// events and bytes were sent to watches of the kinds that members watch.
	events, bytes float64
	// sent is what the simulated members sent, received the content that they got, in bytes.
	sent     simulated.Second
	received int64
	at       time.Time
}

// watchedGroups are the API groups of what members watch on the broker.
var watchedGroups = map[string]bool{
	"seamark.dev": true, "multicluster.x-k8s.io": true, "discovery.k8s.io": true, "coordination.k8s.io": true,
}

// now returns what was used until now, since the processes started.
func (e *environment) now(ctx context.Context) (cost, error) {
	pids := e.planes[0].PIDs()
	c := cost{
		apiServer: usage.Of(pids["kube-apiserver"]), etcd: usage.Of(pids["etcd"]), simulation: usage.Of(os.Getpid()),
		received: e.broker.Traffic.Received(), at: time.Now(),
	}
	for _, plane := range e.planes[1:] {
		for _, pid := range plane.PIDs() {
			c.realMembers.CPU += usage.Of(pid).CPU
		}
	}
	for _, m := range e.fleet.Members {
		c.realMembers.CPU += usage.Of(m.PID()).CPU
	}
	c.sent = simulated.Total(e.broker.Traffic.Between(time.Time{}, c.at))
	text, err := harness.ReadMetrics(ctx, e.planes[0])
	if err != nil {
		return c, err
	}
	for name, into := range map[string]*float64{"apiserver_watch_events_total": &c.events, "apiserver_watch_events_sizes_sum": &c.bytes} {
		samples, err := harness.ParseMetric(bytes.NewReader(text), name)
		if err != nil {
			return c, err
		}
		for _, s := range samples {
			if watchedGroups[s.Labels["group"]] {
				*into += s.Value
			}
		}
	}
	return c, nil
}

// during returns what was used while f ran. The broker must not be restarted by it.
func (e *environment) during(ctx context.Context, f func() error) (cost, error) {
	before, err := e.now(ctx)
	if err != nil {
		return cost{}, err
	}
	if err := f(); err != nil {
		return cost{}, err
	}
	after, err := e.now(ctx)
	if err != nil {
		return cost{}, err
	}
	after.apiServer.CPU -= before.apiServer.CPU
	after.etcd.CPU -= before.etcd.CPU
	after.simulation.CPU -= before.simulation.CPU
	after.realMembers.CPU -= before.realMembers.CPU
	after.events -= before.events
	after.bytes -= before.bytes
	after.sent.Requests -= before.sent.Requests
	after.sent.Failed -= before.sent.Failed
	after.received -= before.received
	after.at = time.Time{}.Add(time.Since(before.at))
	return after, nil
}

// seconds returns how long during took.
func (c cost) seconds() float64 { return c.at.Sub(time.Time{}).Seconds() }

// brokerCPU returns the CPU time of the broker's API server and etcd.
func (c cost) brokerCPU() time.Duration { return c.apiServer.CPU + c.etcd.CPU }

// waveSeconds is over how many seconds the rate of requests is a mean where waves are looked for. A
// thousand members that come back evenly send twice as much in one second as in another.
const waveSeconds = 10

// hasSecondWave reports whether requests came in two waves: beyond the idle rate they fell below a
// quarter of what they had been at most, and rose above half of it again. What all members send
// once a period is a wave, too. A rate below twice the idle one is no wave.
func hasSecondWave(seconds []simulated.Second, idle float64) bool {
	peak, fell := 0.0, false
	for i := range len(seconds) - waveSeconds + 1 {
		beyond := float64(simulated.Total(seconds[i:i+waveSeconds]).Requests)/waveSeconds - idle
		switch isWave := beyond > idle; {
		case isWave && fell && beyond > peak/2:
			return true
		case isWave:
			peak = max(peak, beyond)
		case beyond < peak/4:
			fell = true
		}
	}
	return false
}
