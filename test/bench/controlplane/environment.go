package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	benchNamespace = "bench" // of the services that the agents propagate
	bareNamespace  = "bare"  // of the services that the bare chain propagates
	workers        = 16      // of the benchmark and of the bare chain; a reconciler of the agent has as many
)

// environment is the clusterset that everything is measured on.
type environment struct {
	plane                      objects.DataPlane // of both members
	budgets                    budgets
	broker, exporter, importer *server
	exported                   int // the size of the bulk that is exported now
	// endpoints are the addresses that endpoints can have, and used is how many were used.
	endpoints netip.Prefix
	used      atomic.Uint32
	// client is nil where there are no pods.
	client *podClient
	// closers end everything that was started, in reverse order.
	closers []func()

	// Of control planes without nodes only.
	fleet     *fleet.Fleet
	agent     string // the binary
	agentArgs []string
	dir       string
	planes    []*controlplane.ControlPlane
}

// server is one API server with the benchmark's own client.
type server struct {
	name   string
	client client.WithWatch
	http   *http.Client
	url    string
	// ownRequests is the number of requests of this client, to subtract from those that the server
	// counts.
	ownRequests atomic.Int64
	// agents returns the process ids of the agents, which change when one is restarted.
	agents func() ([]int, error)
	// member is nil on the broker and in a sandbox.
	member *fleet.Member
}

// close stops what was started and removes its files.
func (e *environment) close() {
	for _, end := range slices.Backward(e.closers) {
		end()
	}
}

// newAddress returns an address of an endpoint that was not used before.
func (e *environment) newAddress() string {
	ip := e.endpoints.Addr().As4()
	n := binary.BigEndian.Uint32(ip[:]) + e.used.Add(1)
	binary.BigEndian.PutUint32(ip[:], n)
	return netip.AddrFrom4(ip).String()
}

// createNamespaces creates the namespaces of the benchmark in both members.
func (e *environment) createNamespaces(ctx context.Context) error {
	for _, s := range e.members() {
		for _, name := range []string{benchNamespace, bareNamespace} {
			if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				return fmt.Errorf("create namespace %s: %w", name, err)
			}
		}
	}
	return nil
}

// servers returns all three API servers.
func (e *environment) servers() []*server { return []*server{e.broker, e.exporter, e.importer} }

// members returns the two servers that have agents.
func (e *environment) members() []*server { return []*server{e.exporter, e.importer} }

// withAgentsPaused runs f while the agents are paused: the bare chain is measured without them.
func (e *environment) withAgentsPaused(f func() error) error {
	signalAll := func(signal syscall.Signal) (err error) {
		for _, m := range e.members() {
			pids, findErr := m.agents()
			err = errors.Join(err, findErr)
			for _, pid := range pids {
				err = errors.Join(err, syscall.Kill(pid, signal))
			}
		}
		return err
	}
	err := signalAll(syscall.SIGSTOP)
	if err == nil {
		err = f()
	}
	return errors.Join(err, signalAll(syscall.SIGCONT))
}

func newServer(name string, cfg *rest.Config) (*server, error) {
	s := &server{name: name, url: cfg.Host}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if isCountedRequest(req) {
				s.ownRequests.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	var err error
	if s.http, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, err
	}
	s.client, err = client.NewWithWatch(cfg, client.Options{HTTPClient: s.http, Scheme: harness.Scheme()})
	return s, err
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

const (
	// afterOneService is how long the API servers must have served no request before the agents count
	// as idle.
	afterOneService = 800 * time.Millisecond
	// afterSome is the same after a few dozen services, one at a time.
	afterSome = 6 * time.Second
	// maxDeferral is for how long agents defer their less urgent writes after a burst.
	maxDeferral = 30 * time.Second
)

// after returns how long the API servers must have served no request before the agents count as
// idle after a burst of some length: agents defer their less urgent writes for as long as that.
func after(burst time.Duration) time.Duration { return time.Second + min(burst, maxDeferral) }

// awaitNoRequests waits until the API servers have served no request of the agents for a period.
func (e *environment) awaitNoRequests(ctx context.Context, period time.Duration) error {
	const poll = 400 * time.Millisecond
	var last, changed counts
	since := time.Now()
	for {
		counts, err := e.requests(ctx)
		if err != nil {
			return err
		}
		if counts.total() != last.total() {
			last, changed, since = counts, counts.since(last), time.Now()
		} else if time.Since(since) >= period {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agents did not become idle: %w; the last requests: %s", context.Cause(ctx), changed.describe(1))
		case <-time.After(poll):
		}
	}
}
