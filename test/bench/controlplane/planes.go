package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
)

// newEnvironment starts three control planes without nodes: API servers and etcd. The agents are
// processes of their own.
func newEnvironment(ctx context.Context, plane objects.DataPlane, agentArgs []string) (*environment, error) {
	dir, err := os.MkdirTemp("", "seamark-bench-")
	if err != nil {
		return nil, err
	}
	e := &environment{
		plane: plane, budgets: budgetsOf[plane.Name], endpoints: netip.MustParsePrefix("10.128.0.0/9"), dir: dir, agentArgs: agentArgs,
		closers: []func(){func() { _ = os.RemoveAll(dir) }},
	}
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
	if e.agent, err = fleet.Build(e.dir, "seamark-agent"); err != nil {
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
	if err := e.createNamespaces(ctx); err != nil {
		return err
	}
	for i, s := range e.members() {
		s.member = e.fleet.Members[i]
		s.agents = func() ([]int, error) { return []int{s.member.PID()}, nil }
		if err := s.member.StartBinary(e.agent, e.agentArgs...); err != nil {
			return err
		}
		e.closers = append(e.closers, s.member.Kill)
	}
	return e.awaitNoRequests(ctx, afterSome)
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
	for _, cp := range e.planes {
		if cp != nil {
			// A process that cannot be stopped ends with this one.
			e.closers = append(e.closers, func() { _ = cp.Stop() })
		}
	}
	return errors.Join(errs...)
}
