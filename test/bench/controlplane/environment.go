package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
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
	fleet                      *fleet.Fleet
	agent                      string // the binary
	agentArgs                  []string
	dir                        string
	planes                     []*controlplane.ControlPlane
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
	member      *fleet.Member // nil on the broker
}

func newEnvironment(ctx context.Context, plane objects.DataPlane, agentArgs []string) (*environment, error) {
	dir, err := os.MkdirTemp("", "seamark-bench-")
	if err != nil {
		return nil, err
	}
	e := &environment{plane: plane, budgets: budgetsOf[plane.Name], dir: dir, agentArgs: agentArgs}
	if err := e.start(ctx); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *environment) start(ctx context.Context) error {
	if err := e.startPlanes(ctx); err != nil {
		return err
	}
	var err error
	if e.agent, err = fleet.BuildAgent(e.dir); err != nil {
		return err
	}
	ids := []string{"east", "west"}
	e.fleet, err = fleet.New(ctx, e.planes[0], e.planes[1:], fleet.Options{
		Direct: true, RenewEvery: objects.RenewEvery, LeaseDuration: objects.LeaseDuration,
		IDs: ids, DataPlanes: map[string]v1alpha1.DataPlane{ids[0]: e.plane.Name, ids[1]: e.plane.Name},
	})
	if err != nil {
		return err
	}
	servers := []**server{&e.broker, &e.exporter, &e.importer}
	for i, name := range []string{"broker", "exporter", "importer"} {
		if *servers[i], err = newServer(name, e.planes[i].DirectConfig()); err != nil {
			return err
		}
	}
	e.exporter.member, e.importer.member = e.fleet.Members[0], e.fleet.Members[1]
	for _, s := range []*server{e.exporter, e.importer} {
		for _, name := range []string{benchNamespace, bareNamespace} {
			if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				return fmt.Errorf("create namespace %s: %w", name, err)
			}
		}
		if err := s.member.StartBinary(e.agent, e.agentArgs...); err != nil {
			return err
		}
	}
	return e.awaitNoRequests(ctx, afterBurst)
}

func (e *environment) startPlanes(ctx context.Context) error {
	kube, err := kubeparts.Kube(ctx, os.Stderr)
	if err != nil {
		return err
	}
	const planes = 3
	e.planes = make([]*controlplane.ControlPlane, planes)
	errs := make([]error, planes)
	var starting sync.WaitGroup
	for i := range planes {
		starting.Go(func() {
			name := fmt.Sprintf("bench%d", i)
			e.planes[i], errs[i] = controlplane.Start(ctx, kube, controlplane.Options{Name: name, Dir: filepath.Join(e.dir, name)})
		})
	}
	starting.Wait()
	return errors.Join(errs...)
}

// close stops all processes and removes their files. A process that cannot be stopped ends with
// this one.
func (e *environment) close() {
	if e.fleet != nil {
		for _, m := range e.fleet.Members {
			m.Kill()
		}
	}
	for _, cp := range e.planes {
		if cp != nil {
			_ = cp.Stop()
		}
	}
	_ = os.RemoveAll(e.dir)
}

// servers returns all three API servers.
func (e *environment) servers() []*server { return []*server{e.broker, e.exporter, e.importer} }

// members returns the two servers that have agents.
func (e *environment) members() []*server { return []*server{e.exporter, e.importer} }

// withAgentsPaused runs f while the agents are paused: the bare chain is measured without them.
func (e *environment) withAgentsPaused(f func() error) error {
	for _, m := range e.members() {
		if err := syscall.Kill(m.member.PID(), syscall.SIGSTOP); err != nil {
			return fmt.Errorf("pause the agent of %s: %w", m.name, err)
		}
	}
	err := f()
	for _, m := range e.members() {
		err = errors.Join(err, syscall.Kill(m.member.PID(), syscall.SIGCONT))
	}
	return err
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
	// How long the API servers must have served no request before the agents count as idle. After a
	// burst that is longer, because agents defer their less urgent writes for up to three seconds.
	afterOneService = 800 * time.Millisecond
	afterBurst      = 4 * time.Second
)

// awaitNoRequests waits until the API servers have served no request of the agents for a period.
func (e *environment) awaitNoRequests(ctx context.Context, period time.Duration) error {
	const poll = 400 * time.Millisecond
	var last int64 = -1
	since := time.Now()
	for {
		counts, err := e.requests(ctx)
		if err != nil {
			return err
		}
		if now := counts.total(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) >= period {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agents did not become idle: %w", context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}
