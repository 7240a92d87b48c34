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

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	benchNamespace = "bench" // of what the agents carry
	bareNamespace  = "bare"  // of what the bare chain carries
	workers        = 16      // of the benchmark and of the bare chain; as many as a reconciler of the agent has
)

// bed is what everything is measured on.
type bed struct {
	broker, a, b *server
	fleet        *fleet.Fleet
	agent        string // the binary
	agentArgs    []string
	dir          string
	planes       []*controlplane.ControlPlane
}

// server is one API server with the benchmark's own client, whose requests are counted to be left out.
type server struct {
	name   string
	client client.WithWatch
	http   *http.Client
	url    string
	own    atomic.Int64
	member *fleet.Member // nil on the broker
}

func newBed(ctx context.Context, agentArgs []string) (*bed, error) {
	dir, err := os.MkdirTemp("", "seamark-bench-")
	if err != nil {
		return nil, err
	}
	b := &bed{dir: dir, agentArgs: agentArgs}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bed) start(ctx context.Context) error {
	if err := b.startPlanes(ctx); err != nil {
		return err
	}
	var err error
	if b.agent, err = fleet.BuildAgent(b.dir); err != nil {
		return err
	}
	b.fleet, err = fleet.New(ctx, b.planes[0], b.planes[1:], fleet.Options{
		Direct: true, RenewEvery: objects.RenewEvery, LeaseDuration: objects.LeaseDuration,
	})
	if err != nil {
		return err
	}
	servers := []**server{&b.broker, &b.a, &b.b}
	for i, name := range []string{"broker", "exporter", "importer"} {
		if *servers[i], err = newServer(name, b.planes[i].DirectConfig()); err != nil {
			return err
		}
	}
	b.a.member, b.b.member = b.fleet.Members[0], b.fleet.Members[1]
	for _, s := range []*server{b.a, b.b} {
		for _, name := range []string{benchNamespace, bareNamespace} {
			if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				return fmt.Errorf("create namespace %s: %w", name, err)
			}
		}
		if err := s.member.StartBinary(b.agent, b.agentArgs...); err != nil {
			return err
		}
	}
	return b.settle(ctx, thoroughly)
}

func (b *bed) startPlanes(ctx context.Context) error {
	kube, err := kubeparts.Kube(ctx, os.Stderr)
	if err != nil {
		return err
	}
	const planes = 3
	b.planes = make([]*controlplane.ControlPlane, planes)
	errs := make([]error, planes)
	var starting sync.WaitGroup
	for i := range planes {
		starting.Go(func() {
			name := fmt.Sprintf("bench%d", i)
			b.planes[i], errs[i] = controlplane.Start(ctx, kube, controlplane.Options{Name: name, Dir: filepath.Join(b.dir, name)})
		})
	}
	starting.Wait()
	return errors.Join(errs...)
}

// close ends everything and removes it. What cannot be ended ends with this process.
func (b *bed) close() {
	if b.fleet != nil {
		for _, m := range b.fleet.Members {
			m.Kill()
		}
	}
	for _, cp := range b.planes {
		if cp != nil {
			_ = cp.Stop()
		}
	}
	_ = os.RemoveAll(b.dir)
}

// servers are all three.
func (b *bed) servers() []*server { return []*server{b.broker, b.a, b.b} }

// members are the two with agents.
func (b *bed) members() []*server { return []*server{b.a, b.b} }

// paused runs f while the agents stand still: the bare chain is measured without them.
func (b *bed) paused(f func() error) error {
	for _, m := range b.members() {
		if err := syscall.Kill(m.member.PID(), syscall.SIGSTOP); err != nil {
			return fmt.Errorf("pause the agent of %s: %w", m.name, err)
		}
	}
	err := f()
	for _, m := range b.members() {
		err = errors.Join(err, syscall.Kill(m.member.PID(), syscall.SIGCONT))
	}
	return err
}

func newServer(name string, cfg *rest.Config) (*server, error) {
	s := &server{name: name, url: cfg.Host}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if isCounted(req) {
				s.own.Add(1)
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

// side runs f for 0…n-1 by the usual number of workers and returns all errors.
func side(n int, f func(i int) error) error {
	var (
		next  atomic.Int64
		group sync.WaitGroup
		mu    sync.Mutex
		errs  []error
	)
	for range min(workers, n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

const (
	// shortly is long enough for what single services lead to, thoroughly for what a thousand do: the agents put off what nobody
	// waits for until a rush has been over for up to three seconds.
	shortly    = 800 * time.Millisecond
	thoroughly = 4 * time.Second
)

// settle waits until the API servers have been left alone for a while.
func (b *bed) settle(ctx context.Context, calm time.Duration) error {
	const poll = 400 * time.Millisecond
	var last int64 = -1
	since := time.Now()
	for {
		counts, err := b.requests(ctx)
		if err != nil {
			return err
		}
		if now := counts.total(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) >= calm {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agents did not come to rest: %w", context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}
