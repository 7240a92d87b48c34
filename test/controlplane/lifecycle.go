package controlplane

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// etcdStopTimeout is how long etcd may take to close its files before it is killed. Killing loses
// no data, which is in the kernel's cache; a clean stop saves the next start some replay.
const etcdStopTimeout = 5 * time.Second

// start starts all components in order. After a failure some processes may run; the caller stops
// them.
func (c *ControlPlane) start(ctx context.Context) error {
	var err error
	c.etcd, err = c.spawn(etcdName, etcdArgs(c.files, c.ports))
	if err != nil {
		return err
	}
	if err := c.await(ctx, c.etcd, c.etcdReady); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	return c.startManager(ctx)
}

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	var err error
	c.apiserver, err = c.spawn(apiserverName, apiserverArgs(c.options, c.files, c.ports))
	if err != nil {
		return err
	}
	// The relay listens last, so that no client connects to an API server that is not ready.
	if err := c.await(ctx, c.apiserver, c.apiserverReady); err != nil {
		return err
	}
	c.relay, err = newRelay(c.ports.relay, c.ports.apiserver)
	if err != nil {
		return fmt.Errorf("control plane %q: %w", c.options.Name, err)
	}
	return c.writeKubeconfigs()
}

// startManager starts the controller-manager if there is one. The API server must be ready:
// kube-controller-manager exits after ten seconds without one.
func (c *ControlPlane) startManager(ctx context.Context) error {
	if !c.options.ControllerManager {
		return nil
	}
	var err error
	c.manager, err = c.spawn(managerName, managerArgs(c.options, c.files))
	if err != nil {
		return err
	}
	return c.await(ctx, c.manager, c.managerReady)
}

func (c *ControlPlane) spawn(component string, args []string) (*child, error) {
	var env []string
	if c.options.GCPercent > 0 {
		env = append(env, fmt.Sprintf("GOGC=%d", c.options.GCPercent))
	}
	child, err := spawn(c.kube, component, args, env, c.logPath(component))
	if err != nil {
		return nil, fmt.Errorf("control plane %q: start %s: %w", c.options.Name, component, err)
	}
	return child, nil
}

// stop stops all processes that run, in the reverse order of their start.
func (c *ControlPlane) stop() error {
	errs := []error{c.stopChild(&c.manager, syscall.SIGKILL, 0), c.stopAPIServer(), c.stopChild(&c.etcd, syscall.SIGTERM, etcdStopTimeout)}
	return errors.Join(errs...)
}

// stopAPIServer kills the API server: it keeps no state, and a graceful stop waits for every open
// watch.
func (c *ControlPlane) stopAPIServer() error {
	if c.relay != nil {
		c.relay.close()
		c.relay = nil
	}
	return c.stopChild(&c.apiserver, syscall.SIGKILL, 0)
}

// stopChild stops a process and clears the field that holds it.
func (c *ControlPlane) stopChild(field **child, signal syscall.Signal, timeout time.Duration) error {
	if *field == nil {
		return nil
	}
	if err := (*field).stop(signal, timeout); err != nil {
		return fmt.Errorf("control plane %q: %w", c.options.Name, err)
	}
	*field = nil
	return nil
}

// restart stops all processes, calls between, which may change the state, and starts them on the
// same ports.
func (c *ControlPlane) restart(ctx context.Context, between func() error) error {
	if err := c.stop(); err != nil {
		return err
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	return c.startOnFixedPorts(ctx, c.start, c.stop)
}

// startOnFixedPorts calls start, whose ports are fixed because clients know them. When another
// process has taken a port, it calls undo and retries until the port is free or the time is over.
func (c *ControlPlane) startOnFixedPorts(ctx context.Context, start func(context.Context) error, undo func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	for {
		err := start(ctx)
		if err == nil {
			return nil
		}
		err = errors.Join(err, undo())
		if !errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
