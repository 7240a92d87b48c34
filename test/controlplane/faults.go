package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Pause freezes all processes (SIGSTOP): connections stay open and nobody answers, as on a machine that hangs. A paused
// control plane can be stopped. It fails when the control plane is stopped or a process has died.
func (c *ControlPlane) Pause() error { return c.signalAll(syscall.SIGSTOP) }

// Resume lets paused processes go on where they were (SIGCONT). It fails as Pause does.
func (c *ControlPlane) Resume() error { return c.signalAll(syscall.SIGCONT) }

func (c *ControlPlane) signalAll(signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.etcd == nil {
		return fmt.Errorf("control plane %q is stopped: use Restart before pausing or resuming it", c.options.Name)
	}
	var errs []error
	for _, p := range []*child{c.manager, c.apiserver, c.etcd} {
		if p != nil {
			errs = append(errs, p.signal(signal))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("control plane %q: sending %s: %w", c.options.Name, signal, err)
	}
	return nil
}

// CutOff takes the network between clients (Config, Kubeconfig) and the API server away: bytes on open connections are
// swallowed without a sign, and new connections hear nothing. It lasts until Reconnect, Stop or StopAPIServer; on a
// control plane without a running API server it does nothing. DirectConfig is not affected.
func (c *ControlPlane) CutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.relay != nil {
		c.relay.cut()
	}
}

// Reconnect ends CutOff. Connections that were cut are reset, those that were begun meanwhile go on.
func (c *ControlPlane) Reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.relay != nil {
		c.relay.heal()
	}
}

// Snapshot saves the state and returns the function that puts it back, as often as it is called: a broker that was reset
// to an older state. Saving and putting back both restart the control plane; ctx bounds that, and the ports stay. Both
// fail as Restart does, and when the copy cannot be made; the copy lives in Dir.
func (c *ControlPlane) Snapshot(ctx context.Context) (restore func(context.Context) error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	copied, err := os.MkdirTemp(c.options.Dir, "snapshot-")
	if err != nil {
		return nil, fmt.Errorf("control plane %q: making a snapshot: %w", c.options.Name, err)
	}
	save := func() error { return replaceTree(copied, c.files.etcdData) }
	if err := c.restart(ctx, save); err != nil {
		return nil, fmt.Errorf("control plane %q: making a snapshot: %w", c.options.Name, err)
	}
	return func(ctx context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		putBack := func() error { return replaceTree(c.files.etcdData, copied) }
		if err := c.restart(ctx, putBack); err != nil {
			return fmt.Errorf("control plane %q: going back to a snapshot: %w", c.options.Name, err)
		}
		return nil
	}, nil
}

// replaceTree makes the folder to a copy of the folder from.
func replaceTree(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(to, 0o700) // etcd insists
}
