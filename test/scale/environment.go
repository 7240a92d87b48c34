package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/scale/simulated"
)

// environment is one clusterset: a broker, two real members and many simulated ones.
type environment struct {
	model
	setup
	fleet   *fleet.Fleet
	broker  *simulated.Broker
	planes  []*controlplane.ControlPlane
	binary  string // the agent's
	cli     string // seamark, which measures propagation
	invited int    // simulated members that were invited so far
	// profiles is the folder to which idle and churn write CPU profiles; none if it is empty.
	profiles string
	// closers end everything that was started, in reverse order.
	closers []func()
}

// setup is what an environment begins with.
type setup struct {
	// real are the ids of the real members.
	real []string
	// renewEvery and leaseDuration are the times of all leases.
	renewEvery, leaseDuration time.Duration
}

// asInProduction is what is measured.
var asInProduction = setup{real: []string{"east", "west"}, renewEvery: objects.RenewEvery, leaseDuration: objects.LeaseDuration}

// newEnvironment starts the control planes of the broker and of the real members, and the agents of
// these as processes of their own. They have the namespace of the first team, too.
func newEnvironment(ctx context.Context, with setup) (*environment, error) {
	dir, err := os.MkdirTemp("", "seamark-scale-")
	if err != nil {
		return nil, err
	}
	e := &environment{model: model{used: map[string]int{}}, setup: with, closers: []func(){func() { _ = os.RemoveAll(dir) }}}
	if err := e.start(ctx, dir); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *environment) start(ctx context.Context, dir string) error {
	if err := e.startPlanes(ctx, dir); err != nil {
		return err
	}
	var err error
	e.fleet, err = fleet.New(ctx, e.planes[0], e.planes[1:], fleet.Options{
		IDs: e.real, Direct: true, RenewEvery: e.renewEvery, LeaseDuration: e.leaseDuration,
	})
	if err != nil {
		return err
	}
	if len(e.real) > 0 {
		if err := e.startReal(ctx, dir); err != nil {
			return err
		}
	}
	log, err := os.Create(filepath.Join(dir, "simulated.log"))
	if err != nil {
		return err
	}
	e.closers = append(e.closers, func() { _ = log.Close() })
	e.broker = &simulated.Broker{
		Admin: e.fleet.Admin, Config: e.planes[0].DirectConfig(), Traffic: simulated.NewTraffic(), Log: slog.NewTextHandler(log, nil),
		RenewEvery: e.renewEvery, LeaseDuration: e.leaseDuration,
	}
	if len(e.real) > 0 {
		e.broker.WithoutBeacons = teamSize // the real members import from the first team
	}
	return nil
}

// startReal starts the agents of the real members.
func (e *environment) startReal(ctx context.Context, dir string) error {
	var err error
	if e.binary, err = fleet.Build(dir, "seamark-agent"); err != nil {
		return err
	}
	if e.cli, err = fleet.Build(dir, "seamark"); err != nil {
		return err
	}
	for _, m := range e.fleet.Members {
		if err := m.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teamName(0)}}); err != nil {
			return err
		}
		if err := m.StartBinary(e.binary); err != nil {
			return err
		}
		e.closers = append(e.closers, m.Kill)
	}
	return nil
}

func (e *environment) startPlanes(ctx context.Context, dir string) error {
	kube, err := kubeparts.Kube(ctx, os.Stderr)
	if err != nil {
		return err
	}
	names := append([]string{"broker"}, e.real...)
	e.planes = make([]*controlplane.ControlPlane, len(names))
	errs := make([]error, len(names))
	var starting sync.WaitGroup
	for i, name := range names {
		starting.Go(func() {
			e.planes[i], errs[i] = controlplane.Start(ctx, kube, controlplane.Options{
				Name: name, Dir: filepath.Join(dir, name), ServiceCIDR: fmt.Sprintf("172.%d.0.0/16", 16+i),
				APIServerArgs: []string{"--profiling=true"}, // for an admin who wants to know what is slow
			})
		})
	}
	starting.Wait()
	for _, cp := range e.planes {
		if cp != nil {
			// A process that cannot be stopped ends with this one.
			e.closers = append(e.closers, func() { _ = cp.Stop() })
		}
	}
	return errors.Join(errs...)
}

// close ends all agents and control planes, and removes their files.
func (e *environment) close() {
	_ = harness.Parallel(workers, len(e.members), func(i int) error { e.members[i].Stop(); return nil })
	for _, end := range slices.Backward(e.closers) {
		end()
	}
}

// importer is the real member whose imports are measured.
func (e *environment) importer() *fleet.Member { return e.fleet.Members[1] }

// invite invites n more members, places them in teams and returns them. Their agents are not
// started.
func (e *environment) invite(ctx context.Context, n int) ([]*simulated.Member, error) {
	if e.invited+n+len(e.real) > defaultBlocks {
		if err := e.addRange(ctx); err != nil {
			return nil, err
		}
	}
	for range n {
		member, err := e.broker.Join(ctx, e.invited)
		if err != nil {
			return nil, err
		}
		e.invited++
		if err := e.place(ctx, member); err != nil {
			return nil, err
		}
	}
	return e.members[len(e.members)-n:], nil
}

// defaultBlocks is how many members the default ranges of clusterset IPs are enough for.
const defaultBlocks = 1024

// addRange adds ranges of clusterset IPs for more members, as an admin does with `seamark broker
// deploy`. If they are there already, nothing changes.
func (e *environment) addRange(ctx context.Context) error {
	var ranges []netip.Prefix
	for _, text := range []string{"243.0.0.0/8", "242.0.0.0/8", "fd00:243::/48", "fd00:242::/48"} {
		ranges = append(ranges, netip.MustParsePrefix(text))
	}
	_, err := brokeradmin.Deploy(ctx, e.fleet.Admin, brokeradmin.DeployOptions{Ranges: ranges})
	return err
}

// wave is how many members start at the same time while a clusterset is built up. A mass join is a
// scenario of its own.
const wave = 20

// grow adds n members wave by wave, each when the last one is connected.
func (e *environment) grow(ctx context.Context, n int) error {
	added, err := e.invite(ctx, n)
	if err != nil {
		return err
	}
	for members := range slices.Chunk(added, wave) {
		for _, m := range members {
			m.Start()
		}
		if err := e.awaitConnected(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitConnected waits until every running agent has renewed its lease on the broker. (It reports
// its status later, spread over some time by the number of members.)
func (e *environment) awaitConnected(ctx context.Context) error {
	return poll(ctx, func() error {
		leases := &coordinationv1.LeaseList{}
		if err := e.fleet.Admin.List(ctx, leases, client.InNamespace(objects.DefaultNamespace)); err != nil {
			return err
		}
		connected := map[string]bool{}
		for i := range leases.Items {
			connected[leases.Items[i].Name] = leases.Items[i].Spec.RenewTime != nil
		}
		waiting := 0
		for _, m := range e.members {
			if m.Running() && !connected[m.ID] {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d members are not connected", waiting, len(e.members))
		}
		return nil
	})
}

// awaitSettled waits until all clusters whose agents run have imported exactly what they should. It
// returns how long that took.
func (e *environment) awaitSettled(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	for i, t := range e.teams {
		want := t.expected()
		clients := map[string]client.Client{}
		for _, m := range t.members {
			if m.Running() {
				clients[m.ID] = m.Client
			}
		}
		if i == 0 {
			for _, m := range e.fleet.Members {
				clients[m.ID] = m.Client
			}
		}
		for id, c := range clients {
			err := poll(ctx, func() error {
				have, err := simulated.ReadImports(ctx, c, t.namespace)
				if err != nil {
					return err
				}
				return difference(have, want)
			})
			if err != nil {
				return 0, fmt.Errorf("imports of %s from %s: %w", id, t.namespace, err)
			}
		}
	}
	return time.Since(start), nil
}

// poll calls check until it returns nil or ctx ends.
func poll(ctx context.Context, check func() error) error {
	for interval := 50 * time.Millisecond; ; interval = min(interval*5/4, time.Second) {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(interval):
		}
	}
}
